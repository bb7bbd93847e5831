"""What type checkers know of the package. It is checked, never run."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, assert_type

from locker import Admission, Guard, Guards, Limited, Locker, LockerError, RedisLocker

locker = Locker("redis://10.0.0.7", lease=30, timeout="5s", key_format="python")
article = RedisLocker("redis://10.0.0.7", max_retry=3, retry_delay=2, timeout=10)


@locker.lock_on_argument(10, 0, "amount", name="bank.withdraw", on_lost="error")
def withdraw(card: str, amount: int, *, memo: str = "") -> bool:
    return True


@locker.lock_on_argument()
async def pay(card: str) -> int:
    return 1


@article.lock_on_argument(3, 0, 1)
def function_tobe_locked(bank_card_id: str, withdraw: int, *args: object) -> None: ...


@locker.lock_on_argument(10, "id", guard="lease")
def ship(id: int, lease: Guard) -> str:
    return lease.key


@locker.rate_limit(5, per=60, args=("user",))
def send(user: int) -> int:
    return user


@locker.limit_concurrency(10, args="tenant")
async def render(tenant: str) -> bytes:
    return b""


@locker.leader("reaper", lease=15, note="http://10.0.0.7:80")
async def reap(batches: int) -> bytes:
    return b""


@locker.once_per("1d", from_="3h", args="tenant", name="report.nightly", after_crash="refuse")
def report(tenant: int) -> str:
    """Writes."""
    return ""


@locker.once_per(every="1d", args=("self", 0), timeout=0, stop_before=3)
async def bill(month: str) -> int:
    return 1


@locker.once_per(3600)
async def clean(tables: list[str]) -> None: ...


@locker.once_per("1h", on_skip=lambda: b"")
def count(tenant: int) -> str:
    return ""


@locker.once_per("1h", on_skip=lambda: b"")
async def count_async(tenant: int) -> str:
    return ""


@locker.once_per("1h", guard="run")
def fenced(tenant: int, run: Guard) -> str:
    return run.key


@locker.once_per("1h", guard="run", on_skip=lambda: 0)
async def fenced_async(tenant: int, run: Guard) -> str:
    return run.key


@locker.idempotent("24h", args="request", same=("card", 2), name="shop.pay", after_crash="refuse", max_size=100_000)
def pay_once(request: str, card: str, amount: int) -> dict[str, int]:
    """Pays."""
    return {"amount": amount}


@locker.idempotent(keep=0, key=lambda page: page, timeout=1)
async def render_once(page: str) -> list[str]:
    return [page]


@locker.idempotent("1h", args="request", guard="run", on_error=str)
def traced(request: str, run: Guard) -> str:
    return run.key


async def lead(term: Guard) -> int:
    return term.fence


async def observe() -> None:
    assert_type(await locker.elect("reaper", stop_before=3).run(lead), int)
    observer = await locker.elect("reaper").observe_async()
    leader = observer.leader
    if leader is not None:
        assert_type(leader.since, datetime | None)
    await observer.changed_async()


async def run_once() -> None:
    daily = locker.once("report").per("1d", from_="3h", lease=30)
    assert_type(daily.run(lambda run: run.fence), int | None)
    assert_type(daily.run(lambda run: run.slot), datetime | None)
    assert_type(await daily.run_async(lead), int | None)
    assert_type(await bill("May"), int | None)
    assert_type(await count_async(7), str | bytes)
    assert_type(await fenced_async(7), str | int)
    await clean(["log"])


async def repeat() -> None:
    payment = locker.once("payment 9f3c").keep("24h", same=("4001", 30), max_size=1_000)
    assert_type(payment.run(lambda run: [run.fence]), list[int])
    assert_type(await payment.run_async(lead), int)
    assert_type(await render_once("a"), list[str])


class Account:
    @locker.lock_on_argument(10, "self.id")
    def close(self, force: bool) -> int:
        return 1

    @locker.once_per("1d", args="self.id")
    def audit(self, year: int) -> int:
        return year

    @locker.idempotent("1d", args="self.id", same="year")
    def tax(self, year: int) -> int:
        return year


assert_type(withdraw("visa", 3, memo="rent"), bool)
coroutine: Coroutine[Any, Any, int] = pay("visa")
reaping: Coroutine[Any, Any, bytes] = reap(3)
assert_type(ship(7), str)
assert_type(Account().close(True), int)
assert_type(report(7), str | None)
assert_type(count(7), str | bytes)
assert_type(fenced(7), str | None)
assert_type(Account().audit(1), int | None)
assert_type(pay_once("9f3c", "4001", amount=30), dict[str, int])
assert_type(traced("9f3c"), str)
assert_type(Account().tax(1), int)
rendering: Coroutine[Any, Any, list[str]] = render_once("a")
cleaning: Coroutine[Any, Any, None] = clean(["log"])
send(user=1)

# What a checker must refuse: without the mistake the comment is an error of its own.
withdraw(1, 3)  # type: ignore[arg-type]
withdraw("visa")  # type: ignore[call-arg]
asyncio.run(pay(card=2))  # type: ignore[arg-type]
locker.lock("a", leese=1)  # type: ignore[call-arg]
locker.lock_on_argument(10, on_lost="never")  # type: ignore[call-overload]
locker.elect("reaper", timeout=1)  # type: ignore[call-arg]
locker.leader("reaper", on_lost="error")  # type: ignore[call-overload]
report("a")  # type: ignore[arg-type]
locker.once_per("1d", max_retry=1)  # type: ignore[call-overload]
locker.once_per("1d", after_crash="never")  # type: ignore[call-overload]
locker.once("a").per("1d", leese=1)  # type: ignore[call-arg]
pay_once("9f3c", 4001, 30)  # type: ignore[arg-type]
locker.idempotent()  # type: ignore[call-overload]
locker.idempotent("1d", max_retry=1)  # type: ignore[call-overload]
locker.idempotent("1d", max_size="64k")  # type: ignore[call-overload]
locker.once("a").keep("1d", on_skip=str)  # type: ignore[call-arg]
asyncio.run(locker.once("a").per("1d").run_async(len))  # type: ignore[arg-type]
Locker("memory://", tiemout=1)  # type: ignore[call-arg]


def by_hand() -> None:
    with locker.lock("invoice 7", lease=30, on_lost="continue") as guard:
        assert_type(guard, Guard)
        assert_type(guard.fence, int)
        assert_type(guard.remaining, float)
    assert_type(locker.lock("a").try_acquire(), Guard | None)
    with locker.lock_all(["a", "b"]) as guards:
        assert_type(guards, Guards)
        assert_type(guards.each, list[Guard])
    assert_type(locker.rate_limiter("mail", 5, 60).try_acquire(), Admission | None)
    assert_type(locker.counter("orders").add(), int)
    assert_type(locker.event("done").wait(10), str)


async def in_coroutines() -> None:
    async with locker.semaphore("pool", 3) as guard:
        assert_type(guard, Guard)
    async with locker.lock_all(["a", "b"]) as guards:
        assert_type(guards, Guards)
    assert_type(await locker.lock("a").acquire_async(), Guard)
    assert_type(await locker.counter("orders").add_async(), int)
    assert_type(await render("a"), bytes)


def of_errors(error: LockerError, limited: Limited, handler: Callable[[LockerError], None]) -> None:
    assert_type(error.retry_after, float | None)
    assert_type(limited.retry_after, float)
    handler(limited)
