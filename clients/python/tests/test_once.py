"""Records: of several callers one runs in a slot of time, and its success counts for all."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
import trio
import workers
from runs import Body, Call, fence, fence_async, later, others_share_it, plain
from scripts import Script
from servers import GENEROUS, Redis, eventually
from tasks import Run, asyncio_only, for_ever, waiting

from locker import (
    Conflict,
    Guard,
    Locker,
    LockerError,
    Lost,
    Misused,
    OncePer,
    TimedOut,
    _native,
)
from locker.testing import Control, memory

Testing = tuple[Locker, Control]

YEAR = "366d"
"""No test lasts until the end of such a slot, but for one minute a year."""


def in_an_hour() -> tuple[datetime, timedelta]:
    """Returns the beginning of a slot of a day in an hour, which no test reaches by chance, and its ``from_``."""
    begins = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    return begins, begins - begins.replace(hour=0, minute=0, second=0)


# One per slot


@asyncio_only
def test_one_of_many_tasks_runs(every_url: str, name: str, run: Run) -> None:
    locker, runs = Locker(every_url), list[tuple[int, int]]()

    @locker.once_per(YEAR, args=0, name=name, guard="run")
    async def report(tenant: int, caller: int, *, run: Guard) -> int:
        runs.append((tenant, caller))
        await asyncio.sleep(0)
        run.check()
        return run.fence

    async def main() -> None:
        callers = [(tenant, caller) for caller in range(4) for tenant in range(2)]
        results = await asyncio.gather(*(report(*caller) for caller in callers))
        assert sorted(tenant for tenant, _ in runs) == [0, 1]
        ran = [caller for caller, result in zip(callers, results, strict=True) if result is not None]
        assert sorted(ran) == sorted(runs)

    run(main())


def test_one_of_many_threads_runs(every_url: str, name: str) -> None:
    once = Locker(every_url).once(name).per(YEAR)
    start = threading.Barrier(6)

    def caller() -> int | None:
        start.wait(GENEROUS)
        return once.run(fence)

    with ThreadPoolExecutor(6) as pool:
        results = [made.result(GENEROUS) for made in [pool.submit(caller) for _ in range(6)]]
    assert len([result for result in results if result is not None]) == 1
    assert once.run(fence) is None
    assert Locker(every_url).once(f"{name}-other").per(YEAR).run(fence) is not None


def test_one_of_many_processes_runs(redis: Redis, name: str, tmp_path: Path) -> None:
    path, months = tmp_path / "months", 20
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        ran = [pool.submit(workers.run_once, redis.url, name, str(path), months) for _ in range(2)]
        fences = [fence for process in ran for fence in process.result(GENEROUS)]
    assert len(fences) == months
    assert sorted(map(int, path.read_text().split())) == list(range(months))


def test_next_slot_runs_again(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    daily = locker.once("report").per("1d", from_=in_an_hour()[1])
    first = call(daily, fence)
    assert call(daily, fence) is None
    control.advance("55m")
    assert call(daily, fence) is None
    control.advance("10m")
    second = call(daily, fence)
    assert first < second
    control.advance("23h")
    assert call(daily, fence) is None
    control.advance("1h")
    assert second < call(daily, fence)


def test_early_call_counts_for_the_next_slot(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    begins, from_ = in_an_hour()

    def slot(name: str, **options: Any) -> datetime:
        begun = call(locker.once(name).per("1d", from_=from_, **options), lambda run: run.slot)
        assert isinstance(begun, datetime)
        return begun

    assert slot("hour", early="2h") == begins
    assert slot("default") == slot("no", early=0) == begins - timedelta(days=1)
    control.advance(timedelta(hours=1) - timedelta(seconds=20))
    assert slot("default") == begins
    assert call(locker.once("no").per("1d", from_=from_, early=0), fence) is None
    assert call(locker.once("hour").per("1d", from_=from_, early="2h"), fence) is None


def test_run_tells_its_slot_and_how_many_were_missed(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    begins, from_ = in_an_hour()
    daily, seen = locker.once("report").per("1d", from_=from_), list[tuple[datetime | None, int]]()

    def body(run: Guard) -> None:
        seen.append((run.slot, run.missed))

    # The third slot has no call. A success is forgotten after three slots.
    for hours in (2, 60, 24):
        call(daily, body)
        control.advance(timedelta(hours=hours))
    call(daily, body)
    assert seen == [(begins + timedelta(days=day), missed) for day, missed in ((-1, 0), (0, 0), (2, 1), (3, 0))]
    with locker.lock("report") as guard:
        assert (guard.slot, guard.missed) == (None, 0)


def test_keys_are_those_of_rust(call: Call) -> None:
    locker, _ = memory(prefix="shop:")
    once = locker.once("report.nightly")
    assert (once.key, once.per(YEAR).key) == ("shop:once:report.nightly",) * 2
    assert call(once.per(YEAR), lambda run: run.key) == "shop:once:report.nightly"
    assert repr(once) == "<locker.Once shop:once:report.nightly>"
    assert repr(once.per(YEAR)) == "<locker.OncePer shop:once:report.nightly>"

    @locker.once_per(YEAR, args=(0, "month"), name="report.nightly", guard="run")
    def report(tenant: int, month: str, run: Guard) -> str:
        assert locker.inspect(run.key) is not None
        return run.key

    def digest(text: str) -> str:
        return md5(text.encode()).hexdigest()

    assert report(7, "May") == f"shop:{digest('report:nightly')}:once|{digest('7:May')}"
    assert locker.inspect("shop:once:report.nightly") is not None


def test_slots_of_other_parts_are_others(name: str) -> None:
    locker = Locker("memory://")

    class Account:
        def __init__(self, id: int) -> None:
            self.id = id

        @locker.once_per(YEAR, args="self.id", name=name)
        def close(self, force: bool) -> int:
            """Closes."""
            return self.id

        @locker.once_per(YEAR, key=lambda self, year, month: (self.id, year))
        def audit(self, year: int, month: int) -> int:
            return month

    assert [Account(id).close(True) for id in (1, 2, 1)] == [1, 2, None]
    assert [Account(1).audit(*date) for date in ((2025, 1), (2026, 2), (2025, 3))] == [1, 2, None]
    assert Account.close.__doc__ == "Closes."


# What a skipped call returns


@asyncio_only
def test_skipped_call_returns_what_on_skip_makes(name: str, run: Run) -> None:
    locker = Locker("memory://")

    @locker.once_per(YEAR, name=name, on_skip=list)
    def plain() -> list[int]:
        return [1]

    @locker.once_per(YEAR, name=f"{name}-async", on_skip=lambda: "skipped")
    async def later() -> int:
        return 1

    assert (plain(), plain()) == ([1], [])
    assert (run(later()), run(later())) == (1, "skipped")


@asyncio_only
def test_error_of_on_skip_is_passed_on(name: str, run: Run) -> None:
    locker, error = Locker("memory://"), TimedOut("of another call")

    def fail() -> None:
        raise error

    @locker.once_per(YEAR, name=name, on_skip=fail, on_error=lambda error: "refused")
    def plain() -> None: ...

    @locker.once_per(YEAR, name=f"{name}-async", on_skip=fail, on_error=lambda error: "refused")
    async def later() -> None: ...

    for each in (plain, lambda: run(later())):
        assert each() is None
        with pytest.raises(TimedOut) as raised:
            each()
        assert raised.value is error


# Runs without success


@pytest.mark.parametrize(
    "error", [KeyError("a"), TimedOut("of another call"), Lost("another lock"), KeyboardInterrupt(), SystemExit(3)]
)
def test_failed_run_is_followed_by_who_waits(url: str, name: str, error: BaseException) -> None:
    locker, body = Locker(url), Body()
    once = locker.once(name).per(YEAR, lease=60)
    body.error = error
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(once.run, body)
        assert body.begun.wait(GENEROUS)
        next = pool.submit(once.run, fence)
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 1, "a waiter")
        body.end.set()
        assert failing.exception(GENEROUS) is error
        assert next.result(GENEROUS) is not None
    assert once.run(fence) is None


def test_failed_task_is_followed(url: str, name: str, run: Run) -> None:
    locker, errors = Locker(url), [ZeroDivisionError(), TimedOut("another call"), Lost("another lock")]

    @locker.once_per(YEAR, name=name, lease=60, on_error=lambda error: "refused", on_skip=lambda: "skipped")
    async def report() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    async def main() -> None:
        for error in tuple(errors):
            with pytest.raises(type(error)) as raised:
                await report()
            assert raised.value is error
        assert [await report(), await report()] == ["done", "skipped"]

    run(main())


def test_cancelled_run_is_followed_after_its_body(url: str, name: str, run: Run) -> None:
    locker, steps = Locker(url, lease=60), list[str]()
    once = locker.once(name).per(YEAR)

    async def main() -> None:
        begun = asyncio.Event()

        async def body(run: Guard) -> None:
            begun.set()
            try:
                await for_ever()
            finally:
                await waiting(locker, once, 1)
                assert run.is_held
                steps.append("ended")

        async def after(run: Guard) -> str:
            steps.append("next")
            return "next"

        task = asyncio.create_task(once.run_async(body))
        await begun.wait()
        next = asyncio.create_task(once.run_async(after))
        await waiting(locker, once, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await next == "next"
        assert await once.run_async(after) is None

    run(main())
    assert steps == ["ended", "next"]


def test_cancelled_caller_leaves_the_queue(url: str, name: str, run: Run) -> None:
    locker = Locker(url, lease=60)
    once = locker.once(name).per(YEAR)

    async def main() -> None:
        async def body(run: Guard) -> str:
            other = asyncio.create_task(once.run_async(fence_async))
            await waiting(locker, once, 1)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            await waiting(locker, once, 0)
            return "done"

        assert await once.run_async(body) == "done"

    run(main())


@others_share_it
@pytest.mark.parametrize("after_crash", ["repeat", "refuse"])
def test_killed_process_is_followed_or_refused(every_url: str, name: str, after_crash: Any) -> None:
    locker = Locker(every_url)
    once = locker.once(name).per(YEAR, after_crash=after_crash)
    script = Script(
        every_url,
        name,
        f"""
        def body(run):
            say(run.fence)
            sys.stdin.read()
        locker.once(name).per("366d", lease=1, after_crash="{after_crash}").run(body)
        """,
    )
    begun = int(script.line())
    with ThreadPoolExecutor(1) as pool:
        next = pool.submit(once.run, fence)
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 1, "a waiter")
        script.process.kill()
        script.end()
        assert script.process.returncode == -signal.SIGKILL
        if after_crash == "repeat":
            assert next.result(GENEROUS) > begun  # type: ignore[operator]
            assert once.run(fence) is None
        else:
            why = "nobody knows whether the run before has succeeded"
            assert why in str(next.exception(GENEROUS))
            with pytest.raises(Lost, match=why):
                once.run(fence)


def test_forked_child_does_not_end_the_run_of_its_parent(redis: Redis, name: str) -> None:
    once = Locker(redis.url).once(name).per(YEAR, timeout=0)
    script = Script(
        redis.url,
        name,
        """
        import logging
        logging.disable()
        def body(run):
            if os.fork() == 0:
                return
            os.wait()
            say(run.is_held)
            sys.stdin.read()
        parent = os.getpid()
        locker.once(name).per("366d").run(body)
        say("parent" if os.getpid() == parent else "child")
        if os.getpid() != parent:
            os._exit(0)
        """,
    )
    assert [script.line(), script.line()] == ["child", "True"]
    with pytest.raises(TimedOut):
        once.run(fence)
    assert script.end() == "parent"
    assert once.run(fence) is None


def test_refused_slot_ends(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    once = locker.once("report").per("1d", from_=in_an_hour()[1], lease=10, renew=False, after_crash="refuse")

    def crash(run: Guard) -> None:
        control.advance(11)
        assert not run.is_held
        raise KeyError

    with pytest.raises(KeyError):
        call(once, crash)
    with pytest.raises(Lost, match="nobody knows"):
        call(once, fence)
    control.advance("1d")
    assert call(once, fence) is not None


# Lost runs


def test_lost_run_cancels_the_body(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    steps: list[str] = []

    @locker.once_per(YEAR, name="report", guard="run", on_error=type)
    async def report(fails: bool, run: Guard) -> str:
        if fails:
            assert control.lose(run)
            try:
                await for_ever()
            finally:
                steps.append("ended")
        return "done"

    async def main() -> None:
        assert await report(True) is Lost
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await report(False) == "done"

    run(main())
    assert steps == ["ended"]


def test_body_that_swallows_its_cancel_has_no_success(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    once = locker.once("report").per(YEAR)

    async def swallow(run: Guard) -> str:
        control.lose(run)
        try:
            await for_ever()
        except asyncio.CancelledError:
            pass
        return "late"

    async def main() -> None:
        with pytest.raises(Lost):
            await once.run_async(swallow)
        assert await once.run_async(fence_async) is not None

    run(main())


def test_late_success_is_not_recorded_for_who_got_lost(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing

    def once(name: str) -> OncePer:
        return locker.once(name).per(YEAR, lease=10, renew=False, after_crash="refuse")

    def swallow(sleep: Callable[[], Awaitable[object]], cancelled: type[BaseException]) -> Any:
        async def body(run: Guard) -> str:
            # The store would still take the success of this run.
            control.advance(11)
            with contextlib.suppress(cancelled):
                await sleep()
            return "late"

        return body

    async def main(name: str, body: Callable[[Guard], Awaitable[str]]) -> None:
        for each in (body, fence_async):
            with pytest.raises(Lost):
                await once(name).run_async(each)

    run(main("asyncio", swallow(for_ever, asyncio.CancelledError)))
    trio.run(main, "trio", swallow(trio.sleep_forever, trio.Cancelled))
    # A plain body is not cancelled: it is late in vain only if another run has begun.
    assert once("plain").run(lambda run: control.advance(11) or "late") == "late"
    assert once("plain").run(plain) is None


def test_result_counts_if_the_end_finds_a_loss(
    locker_testing: Testing, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    locker, control = locker_testing
    once = locker.once("report").per(YEAR)

    async def body(run: Guard) -> str:
        control.lose(run)
        assert once.run(fence) is not None
        return "done"

    with caplog.at_level(logging.WARNING, "locker"):
        assert run(once.run_async(body)) == "done"
    assert "was lost" in caplog.text


def test_plain_body_that_another_has_followed_raises(locker_testing: Testing) -> None:
    locker, control = locker_testing
    steps: list[str] = []

    @locker.once_per(YEAR, name="report", guard="run")
    def report(fails: bool, run: Guard) -> str:
        if fails:
            assert control.lose(run)
            with pytest.raises(Lost):
                run.check()
            assert report(False) == "done"
        steps.append("end")
        return "done"

    with pytest.raises(Lost) as raised:
        report(True)
    assert raised.value.function == "report"
    assert report(False) is None
    assert steps == ["end", "end"]


def test_error_after_a_loss_is_passed_on(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    once = locker.once("report").per(YEAR)

    def body(run: Guard) -> None:
        control.lose(run)
        raise KeyError("clean-up")

    with pytest.raises(KeyError) as raised:
        call(once, body)
    assert "lost" in raised.value.__notes__[0]
    assert call(once, fence) is not None


def test_result_is_returned_if_the_store_does_not_answer(
    redis: Redis, name: str, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    locker = Locker(redis.url, command_timeout=0.2, lease=3)
    once = locker.once(name).per(YEAR)

    def body(run: Guard) -> str:
        os.kill(redis.pid, signal.SIGSTOP)
        return "done"

    try:
        with caplog.at_level(logging.WARNING, "locker"):
            assert call(once, body) == "done"
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    assert "release failed" in caplog.text
    # The success is recorded in the background.
    assert call(once, fence) is None


def test_trio_runs_and_is_followed(locker_testing: Testing) -> None:
    locker, control = locker_testing
    once = locker.once("report").per(YEAR)
    steps: list[bool] = []

    async def lose(run: Guard) -> None:
        control.lose(run)
        await trio.sleep_forever()

    async def main() -> None:
        begun = trio.Event()

        async def hang(run: Guard) -> None:
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                steps.append(run.is_held)

        with trio.fail_after(GENEROUS):
            with pytest.raises(Lost):
                await once.run_async(lose)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(once.run_async, hang)
                await begun.wait()
                nursery.cancel_scope.cancel()
            assert await once.run_async(fence_async) is not None
            assert await once.run_async(fence_async) is None

    trio.run(main)
    assert steps == [True]


# Guards


def test_run_cannot_be_released(call: Call, name: str) -> None:
    once = Locker("memory://").once(name).per(YEAR)
    guards: list[Guard] = []

    def body(run: Guard) -> None:
        guards.append(run)
        with pytest.raises(Misused, match="a run ends with its body"):
            run.release()
        with pytest.raises(Misused, match="a run ends with its body"):
            run.release_async().send(None)
        with pytest.raises(Misused, match="in a body already"), run:
            pass
        raise KeyError

    with pytest.raises(KeyError):
        call(once, body)
    assert not guards[0].is_held
    assert call(once, fence) > guards[0].fence


def test_guard_is_no_parameter_of_callers() -> None:
    @Locker("memory://").once_per(YEAR, name="report", guard="run")
    def report(tenant: int, *, run: Guard) -> bool:
        return run.is_held

    assert list(inspect.signature(report).parameters) == ["tenant"]
    with pytest.raises(TypeError, match="which its decorator fills in"):
        report(1, run=None)
    assert report(1)


# What is refused


def test_call_inside_of_its_run_is_misused(url: str, name: str, run: Run) -> None:
    locker = Locker(url)
    once = locker.once(name).per(YEAR)

    @locker.once_per(YEAR, name=name)
    def report(depth: int) -> None:
        report(depth + 1)

    async def body(_: Guard) -> None:
        with pytest.raises(Misused, match="would wait for itself"):
            once.run(fence)
        await once.run_async(body)

    with pytest.raises(Misused, match="would wait for itself"):
        report(1)
    with pytest.raises(Misused) as raised:
        run(once.run_async(body))
    assert raised.value.key == once.key
    assert once.run(fence) is not None


def test_caller_that_does_not_wait_times_out(url: str, name: str) -> None:
    locker, body = Locker(url), Body()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(locker.once(name).per(YEAR).run, body)
        assert body.begun.wait(GENEROUS)
        for timeout in (0, 0.01):
            with pytest.raises(TimedOut) as raised:
                locker.once(name).per(YEAR, timeout=timeout).run(fence)
            assert raised.value.key == f"once:{name}"
        body.end.set()
        assert first.result(GENEROUS) is not None


def test_waiter_has_half_of_a_slot_whatever_the_locker_says(name: str) -> None:
    locker, body = Locker("memory://", max_retry=1, retry_delay=0.01, timeout=0.01), Body()
    once = locker.once(name).per(YEAR)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.run, body)
        assert body.begun.wait(GENEROUS)
        second = pool.submit(once.run, fence)
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 1, "a waiter")
        with pytest.raises(TimedOut):
            locker.once(name).per("1s").run(fence)
        assert not second.done()
        body.end.set()
        assert first.result(GENEROUS) is not None
        assert second.result(GENEROUS) is None


@asyncio_only
def test_body_of_the_other_kind_is_refused(run: Run) -> None:
    once = Locker("memory://").once("report").per(YEAR)
    with pytest.raises(Misused, match=re.escape("later(): `run` needs a plain function: await `run_async` instead")):
        once.run(later)
    with pytest.raises(Misused, match=re.escape("plain(): `run_async` needs an async function")):
        run(once.run_async(plain))  # type: ignore[arg-type]


def test_work_that_outlives_the_run_is_no_success(locker_testing: Testing) -> None:
    locker, _ = locker_testing

    @locker.once_per(YEAR, name="report")
    def report(lazy: bool) -> Any:
        return (n for n in range(3)) if lazy else 3

    with pytest.raises(Misused, match="returned a generator"):
        report(True)
    assert report(False) == 3
    with pytest.raises(Misused, match="returned a coroutine"):
        locker.once("a").per(YEAR).run(lambda run: later(run))
    assert locker.once("a").per(YEAR).run(fence) is not None


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator, Body, staticmethod(plain), 7], ids=str)
def test_what_has_no_body_is_refused(function: Any) -> None:
    with pytest.raises(Misused):
        Locker("memory://").once_per("1d", name="report")(function)


def test_decorator_needs_brackets_and_a_time() -> None:
    locker = Locker("memory://")
    why = "plain(): write the decorator with brackets and a time, @..once_per('1d')"
    with pytest.raises(Misused, match=re.escape(why)):
        locker.once_per(plain)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="every"):
        locker.once_per()  # type: ignore[call-overload]
    with pytest.raises(Misused, match="every=None: give seconds"):
        locker.once_per(None)  # type: ignore[call-overload]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": "500ms"}, "every 500ms is out of range: give 1s to 366d"),
    ({"every": "367d"}, "every 1year 1day 18h is out of range: give 1s to 366d"),
    ({"every": 0}, "every 0s is out of range: give 1s to 366d"),
    ({"every": 1e30}, "every=1e+30 is too long: give at most 366d"),
    ({"every": "daily"}, "every='daily': give seconds"),
    ({"from_": -1}, "from_=-1: give seconds"),
    ({"from_": "11y"}, "from_='11y' is too long: give at most 10 years"),
    ({"every": "1h", "early": "40m"}, "early 40m is more than half of every 1h"),
    ({"early": -1}, "early=-1: give seconds"),
    ({"lease": 0}, "lease"),
    ({"timeout": -1}, "timeout=-1: give seconds"),
    ({"after_crash": "never"}, 'after_crash="never": give "repeat" or "refuse"'),
    ({"after_crash": True}, 'after_crash=True: give "repeat" or "refuse"'),
    ({"stop_before": 6}, "stop_before 6s is more than half of the lease 10s"),
    ({"max_hold": 5}, "max_hold 5s is shorter than the lease 10s"),
    ({"max_hold": 50, "renew": False}, "max_hold has no effect if renew is false"),
    ({"max_hold": 20, "min_hold": 21}, "min_hold"),
    ({"max_retry": 3}, "a run has no option max_retry: a call waits for the run of another one, up to `timeout`"),
    ({"retry_delay": 3}, "a run has no option retry_delay: a call waits for the run of another one, up to `timeout`"),
    ({"each": ("a",)}, "a run has no option each: one call runs per slot and `args`"),
    ({"mode": "read"}, "a run has no option mode: one call runs per slot and `args`"),
    ({"release": "on_expiry"}, "a run has no option release: the run ends with the body, and counts if it succeeds"),
    ({"on_lost": "error"}, "a run has no option on_lost: the run ends with the body, and counts if it succeeds"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_option_fails_when_it_is_given(options: dict[str, Any], message: str) -> None:
    locker, options = Locker("memory://", lease=10), {"every": "1d", **options}
    with pytest.raises(Misused, match=f"^{re.escape(message)}"):
        locker.once_per(**options)
    with pytest.raises(Misused, match=re.escape(message)):
        locker.once("report").per(**options).run(plain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_skip": 5}, "plain(): on_skip=5 is no function without arguments"),
        ({"on_skip": lambda skipped: 1}, "plain(): on_skip= must take no arguments: missing a required argument"),
        ({"on_skip": for_ever}, "plain(): on_skip= must be a plain function: nobody awaits it"),
        ({"on_error": for_ever}, "plain(): on_error= must take one argument"),
        ({"guard": "lease"}, "plain(): guard='lease': there is no such parameter"),
        ({"args": "tenant"}, "plain(): there is no parameter 'tenant' in plain(run: 'Guard') -> 'None'"),
        ({"args": 0, "key": len}, "plain(): key= takes the place of the parts [0]"),
        ({"name": ""}, "name='': give at least one character"),
    ],
    ids=str,
)
def test_wrong_decorator_fails_at_decoration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Misused, match=re.escape(message)):
        Locker("memory://").once_per("1d", **options)(plain)


def test_unknown_option_is_a_type_error() -> None:
    locker = Locker("memory://")
    for per in (locker.once_per, locker.once("report").per):
        with pytest.raises(TypeError, match="there is no option 'leese'"):
            per("1d", leese=1)  # type: ignore[call-arg, call-overload]
    for name in ("", None, 7):
        with pytest.raises(Misused, match="name"):
            locker.once(name)  # type: ignore[arg-type]


def test_key_of_another_kind_is_a_conflict(url: str, name: str, call: Call) -> None:
    locker = Locker(url)
    other = locker._native.semaphore(_native.Key(locker.once(name).key), 1).wait()
    with pytest.raises(Conflict) as raised:
        call(locker.once(name).per(YEAR), plain)
    assert raised.value.key == f"once:{name}"
    other.release().wait()


@asyncio_only
def test_on_error_gets_why_a_call_does_not_run(name: str, run: Run) -> None:
    locker, inner = Locker("memory://"), list[object]()

    async def told(error: LockerError) -> str:
        return f"{type(error).__name__} of {error.function}"

    # Both have one key.
    @locker.once_per(YEAR, name=name, timeout=0, on_error=type)
    def plain(outer: bool) -> None:
        raise AssertionError

    @locker.once_per(YEAR, name=name, timeout=0, on_error=told)
    async def later(outer: bool) -> None:
        if outer:
            inner.append(await later(False))
            inner.append(await asyncio.to_thread(plain, False))

    run(later(True))
    assert inner == [f"TimedOut of {name}", TimedOut]
