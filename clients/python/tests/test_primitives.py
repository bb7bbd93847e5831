"""Rate limiters, events, watchdogs, barriers, latches and counters: both forms of each method, on each store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from servers import GENEROUS

from locker import Conflict, Limited, Locker, Misused, TimedOut, Unavailable


class Both:
    """Calls a method of a primitive in one of its two forms."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self.is_async:
            return method(*args, **kwargs)
        twin = getattr(method.__self__, f"{method.__name__}_async")  # type: ignore[attr-defined]

        async def run() -> Any:
            return await twin(*args, **kwargs)

        return asyncio.run(run())


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def do(request: pytest.FixtureRequest) -> Both:
    """Calls a method, or its twin for coroutines."""
    return Both(request.param)


def test_counter_adds(every_url: str, name: str, do: Both) -> None:
    counter = Locker(every_url).counter(name)
    assert do(counter.get) == 0
    assert do(counter.add) == 1
    assert do(counter.add, -5) == -4
    do(counter.set, 2**53 - 1)
    with pytest.raises(Conflict):
        do(counter.add, 1)
    assert do(counter.get) == 2**53 - 1
    assert counter.key == f"counter:{name}"
    assert repr(counter) == f"<locker.Counter counter:{name}>"


def test_event_is_sent_once(every_url: str, name: str, do: Both) -> None:
    event = Locker(every_url).event(name, keep=timedelta(hours=1))
    with pytest.raises(TimedOut):
        do(event.wait, timeout=0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(do, event.wait, GENEROUS)
        do(event.send, "version 7")
        assert waiting.result() == "version 7"
    assert do(event.wait) == "version 7"
    with pytest.raises(Conflict):
        do(event.send)
    do(event.reset)
    with pytest.raises(TimedOut):
        do(event.wait, timeout=0)


def test_watchdog_expires(every_url: str, name: str, do: Both) -> None:
    watchdog = Locker(every_url).watchdog(name)
    do(watchdog.kick, 60)
    with pytest.raises(TimedOut):
        do(watchdog.wait, timeout=0.01)
    started = time.monotonic()
    do(watchdog.kick, "150ms")
    do(watchdog.wait, timeout=GENEROUS)
    assert time.monotonic() - started >= 0.15


def test_barrier_lets_all_pass_together(every_url: str, name: str, do: Both) -> None:
    barrier = Locker(every_url).barrier(name, 3, once=True)
    with pytest.raises(TimedOut):
        do(barrier.wait, timeout=0.01)
    with ThreadPoolExecutor(3) as pool:
        for arrived in [pool.submit(do, barrier.wait, GENEROUS) for _ in range(3)]:
            arrived.result()
    with pytest.raises(Conflict):
        do(barrier.wait)


def test_latch_opens(every_url: str, name: str, do: Both) -> None:
    latch = Locker(every_url).latch(name, 2)
    assert do(latch.count_down) == 1
    with pytest.raises(TimedOut):
        do(latch.wait, timeout=0.01)
    assert do(latch.count_down) == 0
    do(latch.wait)


def test_rate_limiter_admits_so_many(every_url: str, name: str, do: Both) -> None:
    limiter = Locker(every_url).rate_limiter(name, 3, 60, timeout=0)
    admission = do(limiter.acquire, 2)
    assert admission.remaining == 1
    assert 0 < admission.reset_after <= 60
    assert do(limiter.try_acquire, 2) is None
    assert do(limiter.try_acquire).remaining == 0
    with pytest.raises(Limited) as raised:
        do(limiter.acquire)
    assert 0 < raised.value.retry_after <= 60
    with pytest.raises(Limited):
        do(limiter.acquire, timeout=0.01)
    with pytest.raises(Misused):
        do(limiter.acquire, 4)


def test_rate_limiter_waits(url: str, name: str, do: Both) -> None:
    limiter = Locker(url).rate_limiter(name, 5, 0.5, algorithm="gcra", burst=1)
    started = time.monotonic()
    for _ in range(3):
        do(limiter.acquire)
    assert time.monotonic() - started >= 0.19


def test_limit_of_size_0_says_nothing_about_later(name: str) -> None:
    with pytest.raises(Limited) as raised:
        Locker("memory://").rate_limiter(name, 0, 1, timeout=0.01).acquire()
    assert raised.value.retry_after == float("inf")


def test_key_of_another_primitive_is_a_conflict(redis: Any, name: str) -> None:
    redis.client.set(f"counter:{name}", "of another program")
    with pytest.raises(Conflict):
        Locker(redis.url).counter(name).add()


def test_waiting_thread_leaves_the_gil_to_others(url: str, name: str) -> None:
    event = Locker(url).event(name)
    waiting = [threading.Thread(target=event.wait, args=(GENEROUS,)) for _ in range(20)]
    for thread in waiting:
        thread.start()
    event.send()
    for thread in waiting:
        thread.join(GENEROUS)
        assert not thread.is_alive()


def test_call_without_a_timeout_repeats_its_request_for_up_to_five_seconds(name: str) -> None:
    locker = Locker("redis://127.0.0.1:1", timeout=0.1)
    calls: list[Callable[[], Any]] = [
        locker.counter(name).add,
        locker.counter(name).get,
        locker.event(name).send,
        lambda: locker.watchdog(name).kick(1),
        locker.latch(name, 1).count_down,
    ]
    started = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as pool:
        for failed in [pool.submit(call) for call in calls]:
            assert isinstance(failed.exception(), Unavailable)
    assert 1 < time.monotonic() - started < GENEROUS


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda it: it.counter("a").add(10**400), "by=1000"),
        (lambda it: it.counter("a").add(1.5), "by=1.5: give a number"),
        (lambda it: it.counter("a").set(True), "value=True: give a number"),
        (lambda it: it.counter(5), "name=5: give a text"),
        (lambda it: it.counter(""), "name='': give at least one character"),
        (lambda it: it.event("\ud800"), "name='\\\\ud800': it has lone surrogates"),
        (lambda it: it.event("a").send(None), "message=None: give a text"),
        (lambda it: it.event("a").wait(timeout="soon"), "timeout='soon': give seconds"),
        (lambda it: it.event("a", keep=10**400), "keep is too long: give at most 10 years"),
        (lambda it: it.event("a", keep=float("inf")), "keep=inf is too long: give at most 10 years"),
        (lambda it: it.watchdog("a").kick(10**400), "expires is too long"),
        (lambda it: it.watchdog("a").kick(None), "expires=None: give seconds"),
        (lambda it: it.latch("a", 1.5), "count=1.5: give a number"),
        (lambda it: it.barrier("a", "3"), "parties='3': give a number"),
        (lambda it: it.rate_limiter("a", 1, 10**400), "per is too long"),
        (lambda it: it.rate_limiter("a", 1, 0), "per=0 is too short"),
        (lambda it: it.rate_limiter("a", 1, 1, timeout=10**400).acquire(), "timeout is too long"),
        (lambda it: it.rate_limiter("a", 1, 1).acquire("1"), "tokens='1': give a number"),
        (lambda it: it.rate_limiter("a", 1, 1, burst=2), "burst belongs to gcra"),
    ],
)
def test_wrong_argument_is_named(call: Callable[[Locker], object], message: str) -> None:
    with pytest.raises(Misused, match=message):
        call(Locker("memory://"))
