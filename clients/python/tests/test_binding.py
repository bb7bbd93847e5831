"""Which arguments are parts of the key."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from locker import Locker, Misused
from locker._binding import Binding, Part

LOCKER = Locker("memory://")


@dataclass
class Order:
    id: int
    shop: Any = None


def withdraw(card: str, amount: int = 10, *rest: Any, memo: str = "", **more: Any) -> None: ...


def pay(card: str, /, amount: int, order: Order | None = None) -> None: ...


class Account:
    def close(self, card: str, force: bool = False) -> None: ...


@pytest.mark.parametrize(
    ("function", "parts", "args", "kwargs", "expected"),
    [
        (withdraw, (0, 1), ("visa", 30), {}, ["visa", 30]),
        (withdraw, (0, 1), ("visa",), {}, ["visa", 10]),
        (withdraw, (1, 0), (), {"amount": 3, "card": "visa"}, [3, "visa"]),
        (withdraw, ("amount",), ("visa",), {"amount": 5}, [5]),
        (withdraw, (3,), ("visa", 1, "a", "b"), {}, ["b"]),
        (withdraw, ("memo",), ("visa",), {"memo": "rent"}, ["rent"]),
        (withdraw, ("memo",), ("visa",), {}, [""]),
        (withdraw, ("user",), ("visa",), {"user": 7}, [7]),
        (pay, ("order.id",), ("visa", 1, Order(7)), {}, [7]),
        (pay, ("order.shop.id", 0), ("visa",), {"amount": 1, "order": Order(7, Order(8))}, [8, "visa"]),
        (Account.close, (1,), (Account(), "visa"), {}, ["visa"]),
        (Account.close, ("force",), (Account(), "visa"), {"force": True}, [True]),
        (withdraw, (), ("visa",), {}, []),
    ],
)
def test_parts_are_bound_by_the_signature(
    function: Callable[..., Any], parts: tuple[Part, ...], args: Any, kwargs: Any, expected: list[object]
) -> None:
    assert list(Binding(function).parts(parts).read(args, kwargs)) == expected


def two(a: int, b: int) -> None: ...


def test_negative_position_counts_from_the_last_argument_if_all_calls_have_the_same() -> None:
    assert list(Binding(two).parts((-1, -2)).read((1, 2), {})) == [2, 1]
    for function in (withdraw, Account.close):
        with pytest.raises(Misused, match="position -1 is not the same parameter in every call"):
            Binding(function).parts((-1,))
    with pytest.raises(Misused, match="position -3"):
        Binding(two).parts((-3,))


@pytest.mark.parametrize(
    ("function", "part", "message"),
    [
        (two, 2, r"two\(\): there is no parameter at position 2 \(from 0\) in two\(a"),
        (two, "c", r"there is no parameter 'c' in two\(a"),
        (two, "c.id", "there is no parameter 'c'"),
        (two, "a b", "neither a parameter's name nor a path"),
        (two, "a.", "neither a parameter's name nor a path"),
        (two, True, "True is no part of a key"),
        (two, 1.5, "1.5 is no part of a key"),
        (withdraw, "rest", r"\*rest.* is no single argument"),
        (withdraw, "more", r"\*\*more.* is no single argument"),
    ],
)
def test_impossible_part_fails_at_decoration(function: Callable[..., Any], part: Any, message: str) -> None:
    with pytest.raises(Misused, match=message):
        LOCKER.lock_on_argument(10, part)(function)


def test_missing_argument_is_the_type_error_of_the_function() -> None:
    locked = LOCKER.lock_on_argument(10, "a")(two)
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        locked()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument at position 3, which is part of the key"):
        LOCKER.lock_on_argument(10, 3)(withdraw)("visa")
    with pytest.raises(TypeError, match="missing a required argument: 'card'"):
        LOCKER.lock_on_argument(10, 0)(pay)(amount=1)  # type: ignore[call-arg]


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (generator, "a generator runs after its call"),
        (async_generator, "a generator runs after its call"),
        (Order, "a class cannot be locked"),
        (staticmethod(two), "put @staticmethod, @classmethod and @property above"),
        (classmethod(two), "put @staticmethod"),
        (property(two), "put @staticmethod"),
        (7, "it is no function"),
        (functools.partial(two, 1), "it has no name of its own: give one with name="),
    ],
)
def test_what_has_no_body_is_refused(target: Any, message: str) -> None:
    for decorator in (LOCKER.lock_on_argument(), LOCKER.limit_concurrency(1), LOCKER.rate_limit(1, per=1)):
        with pytest.raises(Misused, match=message):
            decorator(target)


def test_function_that_returns_a_coroutine_is_refused_at_the_call() -> None:
    async def later() -> None: ...

    @LOCKER.lock_on_argument()
    def start() -> Any:
        return later()

    @LOCKER.lock_on_argument()
    def items() -> Any:
        return (item for item in [1])

    with pytest.raises(Misused, match=r"start\(\) returned a coroutine"):
        start()
    with pytest.raises(Misused, match=r"items\(\) returned a generator"):
        items()


async def nothing() -> None: ...


class Awaited:
    def __await__(self) -> Iterator[None]:
        yield


class Lazy(Generator[int, None, None]):
    closed = False

    def send(self, value: None, /) -> int:
        return 1

    def throw(self, *error: Any) -> int:
        raise StopIteration

    def close(self) -> None:
        Lazy.closed = True


@contextlib.contextmanager
def session() -> Iterator[int]:
    yield 1


@contextlib.asynccontextmanager
async def session_async() -> AsyncIterator[int]:
    yield 1


DEFERRED: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: asyncio.ensure_future(nothing()), "Task", "make it `async def`"),
    (lambda: asyncio.get_running_loop().create_future(), "Future", "make it `async def`"),
    (lambda: asyncio.gather(nothing(), nothing()), "GatheringFuture", "make it `async def`"),
    (Awaited, "Awaited", "make it `async def`"),
    (lambda: nothing(), "coroutine", "make it `async def`"),
    (concurrent.futures.Future, "Future", "return its result"),
    (session, "GeneratorContextManager", "take the lock by hand inside of it"),
    (session_async, "AsyncGeneratorContextManager", "take the lock by hand inside of it"),
    (generator, "generator", "return a list"),
    (async_generator, "async generator", "return a list"),
    (Lazy, "Lazy", "return a list"),
]


@pytest.mark.parametrize(("make", "kind", "cure"), DEFERRED, ids=[kind for _, kind, _ in DEFERRED])
def test_function_that_returns_deferred_work_is_refused_and_released(
    make: Callable[[], Any], kind: str, cure: str, name: str
) -> None:
    locker = Locker("memory://", timeout=0)

    def start(card: int = 1) -> Any:
        return make()

    async def main() -> None:
        message = rf"start\(\) returned a {kind}, whose work may run after the call: .*{cure}"
        decorators: list[Callable[[Any], Any]] = [
            locker.lock_on_argument(name=name),
            locker.lock_on_argument(name=name, on_error=lambda error: error),
            locker.lock_on_argument(name=name, each=("card",)),
            locker.limit_concurrency(1, name=name),
        ]
        for decorator in decorators:
            # The second call would time out if the first still held.
            for _ in range(2):
                with pytest.raises(Misused, match=message):
                    decorator(start)()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert kind != "Lazy" or Lazy.closed


def test_deferred_work_is_returned_where_the_hold_does_not_end_with_the_call(name: str) -> None:
    locker = Locker("memory://", timeout=0)

    async def main() -> None:
        def submit() -> asyncio.Task[None]:
            return asyncio.ensure_future(nothing())

        await locker.rate_limit(1, per=60, name=name)(submit)()
        await locker.lock_on_argument(10, name=name, release="on_expiry")(submit)()
        await locker.limit_concurrency(1, name=name, release="on_expiry")(submit)()

    asyncio.run(main())
    for decorator in (locker.rate_limit(9, per=60, name=name), locker.lock_on_argument(name=f"{name}-1")):
        with pytest.raises(Misused, match="returned a coroutine"):
            decorator(lambda: nothing())()


def test_other_results_are_returned(name: str) -> None:
    results: list[Any] = [
        None, 0, "a", [1], {"a": 1}, iter([1]), map(str, [1]), zip([1]), range(3), open(__file__, "rb"),
        mock.Mock(), mock.MagicMock(), contextlib.nullcontext(), contextlib.closing(mock.Mock()),
        contextlib.ExitStack(), threading.Lock(), nothing, generator, Awaited, ValueError("a"),
        functools.partial(nothing), concurrent.futures.ThreadPoolExecutor(1),
    ]  # fmt: skip
    for result in results:
        assert LOCKER.lock_on_argument(name=name)(lambda result=result: result)() is result
    results[9].close()


def test_decorator_without_brackets_is_refused() -> None:
    with pytest.raises(Misused, match="write the decorator with brackets"):
        LOCKER.lock_on_argument(two)  # type: ignore[call-overload]


def test_partial_with_a_name_is_locked() -> None:
    assert LOCKER.lock_on_argument(name="partial")(functools.partial(max, 1))(2) == 2
