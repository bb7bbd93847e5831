"""The decorators, for `def` and `async def`."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from servers import GENEROUS, eventually

from locker import (
    Conflict,
    Guard,
    Guards,
    Limited,
    Locker,
    LockerError,
    Lost,
    Misused,
    RetriesExhausted,
    TimedOut,
    Unavailable,
)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function, in a loop of its own if it is async."""
    made = function(*args, **kwargs)
    return asyncio.run(_of(made)) if inspect.isawaitable(made) else made


async def _of(made: Awaitable[Any]) -> Any:
    return await made


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    wrapped.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return wrapped


@pytest.fixture(params=["def", "async def"])
def form(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turns a function into one of each form."""
    return as_async if request.param == "async def" else lambda function: function


Form = Callable[[Callable[..., Any]], Callable[..., Any]]


def test_calls_with_equal_arguments_run_one_after_the_other(url: str, name: str) -> None:
    locker = Locker(url)
    inside = {1: 0, 2: 0}
    both_cards = threading.Barrier(2)
    overlaps: list[int] = []

    @locker.lock_on_argument(10, "card", name=name, timeout=GENEROUS)
    def withdraw(card: int) -> None:
        inside[card] += 1
        overlaps.append(inside[card])
        both_cards.wait(GENEROUS)
        inside[card] -= 1

    threads = [threading.Thread(target=withdraw, args=(card,)) for card in (1, 2) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS)
    assert overlaps == [1] * 20


def test_coroutines_with_equal_arguments_run_one_after_the_other(url: str, name: str) -> None:
    locker = Locker(url)
    inside, overlaps = 0, []

    @locker.lock_on_argument(10, 0, name=name, timeout=GENEROUS)
    async def withdraw(card: int) -> int:
        nonlocal inside
        inside += 1
        overlaps.append(inside)
        await asyncio.sleep(0)
        inside -= 1
        return card

    async def run() -> list[int]:
        return await asyncio.gather(*(withdraw(7) for _ in range(50)))

    assert asyncio.run(run()) == [7] * 50
    assert overlaps == [1] * 50


def test_method_is_locked_on_its_arguments(form: Form, name: str) -> None:
    locker = Locker("memory://")

    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        def close(self, force: bool, *, lease: Guard) -> tuple[int, str]:
            return self.number, lease.key

        close = locker.lock_on_argument(10, "self.number", 1, name=name, guard="lease")(form(close))

    number, key = call(Account(7).close, True)
    with locker.lock_on(name, 7, True) as guard:
        assert (number, key) == (7, guard.key)


def test_lock_is_free_again_however_the_function_ends(form: Form, url: str, name: str) -> None:
    locker = Locker(url)

    @locker.lock_on_argument(name=name, timeout=0)
    @form
    def fail(error: BaseException | None) -> int:
        if error is not None:
            raise error
        return 1

    for error in (ValueError("a"), KeyError("b"), Lost("of the body")):
        with pytest.raises(type(error)) as raised:
            call(fail, error)
        assert raised.value is error
        assert call(fail, None) == 1


def test_held_lock_ends_the_wait(form: Form, url: str, name: str) -> None:
    locker = Locker(url)

    def withdraw(card: int) -> None:
        raise AssertionError

    guard = locker.lock_on(name, 1).acquire()
    timed_out = locker.lock_on_argument(10, 0, name=name, timeout=0.05)(form(withdraw))
    with pytest.raises(TimedOut) as raised:
        call(timed_out, 1)
    assert isinstance(raised.value, TimeoutError)
    assert (raised.value.key, raised.value.function) == (guard.key, name)
    assert raised.value.is_temporary
    exhausted = locker.lock_on_argument(10, 0, name=name, max_retry=2, retry_delay=0.01)(form(withdraw))
    with pytest.raises(RetriesExhausted):
        call(exhausted, 1)
    guard.release()


def test_on_error_makes_the_result(form: Form, name: str) -> None:
    locker = Locker("memory://")
    errors: list[LockerError] = []

    def busy(error: LockerError) -> str:
        errors.append(error)
        return "busy"

    async def busy_async(error: LockerError) -> str:
        return busy(error)

    def refresh(fail: bool = False) -> str:
        if fail:
            raise TimedOut("of the body")
        return "fresh"

    on_error = busy_async if form is as_async else busy
    locked = locker.lock_on_argument(name=name, timeout=0, on_error=on_error)(form(refresh))
    assert call(locked) == "fresh"
    with pytest.raises(TimedOut, match="of the body"):
        call(locked, fail=True)
    with locker.lock_on(name):
        assert call(locked) == "busy"
    limited = locker.rate_limit(1, per=60, name=name, timeout=0, on_error=on_error)(form(refresh))
    assert [call(limited), call(limited)] == ["fresh", "busy"]
    assert [type(error) for error in errors] == [TimedOut, Limited]


def test_call_that_would_wait_for_itself_is_refused_at_once(form: Form, url: str, name: str) -> None:
    locker = Locker(url)
    outcomes: list[object] = []

    @locker.lock_on_argument(10, 0, name=name)
    def inner(card: int) -> str:
        return "inside"

    @locker.lock_on_argument(10, 0, name=name)
    def outer(card: int) -> None:
        for inside in (1, 2):
            try:
                outcomes.append(inner(inside))
            except Misused as error:
                outcomes.append(error.key)

    @locker.lock_on_argument(10, 0, name=name)
    async def inner_async(card: int) -> str:
        return "inside"

    @locker.lock_on_argument(10, 0, name=name)
    async def outer_async(card: int) -> None:
        for inside in (1, 2):
            try:
                outcomes.append(await inner_async(inside))
            except Misused as error:
                outcomes.append(error.key)

    started = time.monotonic()
    call(outer_async if form is as_async else outer, 1)
    assert time.monotonic() - started < 5
    with locker.lock_on(name, 1) as guard:
        assert outcomes == [guard.key, "inside"]


def test_task_of_the_body_waits_as_any_other(name: str) -> None:
    locker = Locker("memory://")

    @locker.lock_on_argument(name=name, timeout=GENEROUS)
    async def withdraw(again: bool) -> asyncio.Task[Any] | None:
        return asyncio.create_task(withdraw(False)) if again else None

    async def run() -> None:
        task = await withdraw(True)
        assert task is not None
        await asyncio.wait_for(task, GENEROUS)

    asyncio.run(run())


def test_each_takes_a_lock_per_part(form: Form, url: str, name: str) -> None:
    locker = Locker(url)

    def transfer(source: int, target: int, *, held: Guards) -> list[str]:
        assert held.is_held
        return [guard.key for guard in held.each]

    locked = locker.lock_on_argument(name=name, each=("source", "target"), guard="held", timeout=0)(form(transfer))
    with locker.lock_on(name, 1) as one:
        key = one.key
        with pytest.raises(TimedOut):
            call(locked, 2, 1)
    assert key in call(locked, 2, 1)
    assert len(call(locked, 2, 1)) == 2
    assert call(locked, 1, 1) == [key]
    with pytest.raises(Misused, match="each= takes the place of the parts"):
        locker.lock_on_argument(10, 0, each=(1,))


def test_readers_share_and_writers_do_not(form: Form, url: str, name: str) -> None:
    locker = Locker(url)

    def nothing(page: int) -> int:
        return page

    show = locker.lock_on_argument(10, 0, name=name, mode="read", timeout=0)(form(nothing))
    edit = locker.lock_on_argument(10, 0, name=name, mode="write", timeout=0)(form(nothing))
    plain = locker.lock_on_argument(10, 0, name=name, timeout=0)(form(nothing))

    def read(page: int) -> None:
        # In another task or thread this would be no call inside the body.
        done: list[object] = []

        def others() -> None:
            done.append(call(show, page))
            for refused in (edit, plain):
                try:
                    call(refused, page)
                except LockerError as error:
                    done.append(type(error))

        thread = threading.Thread(target=others)
        thread.start()
        thread.join(GENEROUS)
        assert done == [1, TimedOut, Conflict]

    locker.lock_on_argument(10, 0, name=name, mode="read")(read)(1)
    assert call(edit, 1) == 1


def test_on_expiry_runs_once_per_lease(form: Form, url: str, name: str) -> None:
    submit = Locker(url).lock_on_argument(0.5, 0, name=name, release="on_expiry")(form(lambda form: form))
    assert call(submit, 7) == 7
    with pytest.raises(TimedOut):
        call(submit, 7)
    assert call(submit, 8) == 8

    def again() -> bool:
        try:
            return bool(call(submit, 7))
        except TimedOut:
            return False

    eventually(again)


def test_limit_concurrency_lets_so_many_in(url: str, name: str) -> None:
    locker = Locker(url)
    inside, most = 0, 0

    @locker.limit_concurrency(3, args="tenant", name=name, timeout=GENEROUS)
    async def render(tenant: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1

    async def run() -> None:
        await asyncio.gather(*(render("a") for _ in range(20)))

    asyncio.run(run())
    assert most == 3


def test_limit_concurrency_of_plain_functions(form: Form, url: str, name: str) -> None:
    locker = Locker(url)

    def render(tenant: str, *, lease: Guard) -> str:
        return lease.key

    limited = locker.limit_concurrency(1, 5, args=("tenant",), name=name, timeout=0, guard="lease")(form(render))
    assert ":semaphore|" in call(limited, "a")

    def refused(tenant: str) -> None:
        raised = []

        def other() -> None:
            try:
                call(limited, "a")
            except TimedOut as error:
                raised.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(GENEROUS)
        assert len(raised) == 1

    locker.limit_concurrency(1, args=0, name=name)(refused)("a")


def test_rate_limit_says_when_to_come_back(form: Form, url: str, name: str) -> None:
    locker = Locker(url)
    send = locker.rate_limit(2, per="1m", args="user", name=name, timeout=0)(form(lambda user: user))
    assert [call(send, 1), call(send, 1), call(send, 2)] == [1, 1, 2]
    with pytest.raises(Limited) as raised:
        call(send, 1)
    assert 0 < raised.value.retry_after <= 60
    assert raised.value.function == name
    slow = locker.rate_limit(1, 0.2, name=name, algorithm="gcra", burst=1)(form(lambda: time.monotonic()))
    first = call(slow)
    assert call(slow) - first > 0.1


def test_guard_parameter_is_filled_in() -> None:
    locker = Locker("memory://")

    @locker.lock_on_argument(10, "id", name="invoice.pay", guard="lease")
    def pay(id: int, lease: Guard) -> int:
        """Pays."""
        lease.check()
        assert 0 < lease.remaining <= 10
        return lease.fence

    assert pay(1) < pay(1)
    assert pay(id=1) > 0
    assert str(inspect.signature(pay)) == "(id: 'int') -> 'int'"
    assert (pay.__name__, pay.__doc__, "lease" in pay.__annotations__) == ("pay", "Pays.", False)
    with pytest.raises(TypeError, match="'lease', which its decorator fills in"):
        pay(1, lease=None)


def test_signature_and_form_stay() -> None:
    locker = Locker("memory://")

    @locker.lock_on_argument()
    async def withdraw(card: int, amount: int = 3) -> int:
        return amount

    assert inspect.iscoroutinefunction(withdraw)
    assert str(inspect.signature(withdraw)) == "(card: 'int', amount: 'int' = 3) -> 'int'"
    assert withdraw.__qualname__.endswith("withdraw")
    assert asyncio.run(withdraw(1)) == 3


def test_decorators_stack(form: Form, name: str) -> None:
    locker = Locker("memory://")

    def sell(shop: int, item: int) -> str:
        return f"{shop} {item}"

    locked = form(sell)
    for decorator in (
        locker.lock_on_argument(10, "item", name=f"{name}.item"),
        locker.limit_concurrency(2, args="shop", name=name),
        locker.rate_limit(100, per=1, args="shop", name=name),
        locker.lock_on_argument(10, "shop", name=f"{name}.shop"),
    ):
        locked = decorator(locked)
    assert call(locked, 1, item=2) == "1 2"


def test_store_that_cannot_be_reached_is_unavailable(form: Form) -> None:
    locker = Locker("redis://127.0.0.1:1", timeout=0.2)
    with pytest.raises(Unavailable) as raised:
        call(locker.lock_on_argument(name="a")(form(lambda: None)))
    assert isinstance(raised.value, ConnectionError)


def test_timeout_may_be_infinite(name: str) -> None:
    assert Locker("memory://", timeout=math.inf).lock_on_argument(name=name, timeout=math.inf)(lambda: 1)() == 1
