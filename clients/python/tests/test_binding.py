"""Which arguments are parts of the key."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

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


def test_decorator_without_brackets_is_refused() -> None:
    with pytest.raises(Misused, match="write the decorator with brackets"):
        LOCKER.lock_on_argument(two)  # type: ignore[call-overload]


def test_partial_with_a_name_is_locked() -> None:
    assert LOCKER.lock_on_argument(name="partial")(functools.partial(max, 1))(2) == 2
