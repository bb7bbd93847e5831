"""Elections: one leader at a time, what ends its term, and what others see of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import multiprocessing
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
import workers
from servers import GENEROUS, Redis, eventually
from tasks import Run, asyncio_only, for_ever, is_free, until, waiting

from locker import (
    Conflict,
    Deadlock,
    Election,
    Guard,
    Leader,
    Locker,
    Lost,
    Misused,
    Observer,
    TimedOut,
    Unavailable,
    _native,
)
from locker.testing import Control

Testing = tuple[Locker, Control]


class Term:
    """A body that leads until it is told to stop."""

    def __init__(self) -> None:
        self.begun, self.stop = asyncio.Event(), asyncio.Event()
        self.fences: list[int] = []

    async def __call__(self, term: Guard) -> int:
        self.fences.append(term.fence)
        self.begun.set()
        await self.stop.wait()
        return term.fence


# One at a time


@asyncio_only
def test_one_candidate_leads_at_a_time(every_url: str, name: str, run: Run) -> None:
    locker, leading, fences = Locker(every_url), set[int](), list[int]()

    @locker.leader(name, lease=15, guard="term")
    async def reap(candidate: int, *, term: Guard) -> int:
        assert not leading
        leading.add(candidate)
        fences.append(term.fence)
        await asyncio.sleep(0)
        term.check()
        leading.remove(candidate)
        return candidate

    async def main() -> None:
        async def body(term: Guard) -> int:
            return await reap.__wrapped__(7, term=term)  # type: ignore[attr-defined,no-any-return]

        terms = [*(reap(candidate) for candidate in range(7)), locker.elect(name).run(body)]
        assert await asyncio.gather(*terms) == list(range(8))

    run(main())
    assert len(fences) == 8
    assert fences == sorted(set(fences))


def test_two_processes_lead_one_at_a_time(redis: Redis, name: str, tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        led = [pool.submit(workers.lead_often, redis.url, name, str(tmp_path / "leads"), 20) for _ in range(2)]
        fences = [fence for process in led for fence in process.result(GENEROUS)]
    assert len(set(fences)) == 40


@asyncio_only
def test_step_down_elects_the_next(url: str, name: str, run: Run) -> None:
    locker = Locker(url)

    async def main() -> None:
        first, second = Term(), Term()
        one = asyncio.create_task(locker.elect(name).run(first))
        await first.begun.wait()
        other = asyncio.create_task(locker.elect(name).run(second))
        await waiting(locker, locker.elect(name), 1)
        assert not second.begun.is_set()
        first.stop.set()
        await second.begun.wait()
        second.stop.set()
        assert await one == first.fences[0] < second.fences[0] == await other

    run(main())


@asyncio_only
def test_decorator_and_election_are_one_lock(name: str, run: Run) -> None:
    locker = Locker("memory://", prefix="shop:")

    @locker.leader(name, guard="term")
    async def reap(term: Guard) -> Guard:
        """Reaps."""
        assert (term.key, locker.elect(name).key) == (f"shop:leader:{name}",) * 2
        seen = await locker.inspect_async(term.key)
        assert seen is not None
        assert seen.holders[0].fence == term.fence
        return term

    assert not inspect.signature(reap).parameters
    assert reap.__doc__ == "Reaps."
    assert inspect.iscoroutinefunction(reap)
    assert not run(reap()).is_held
    with pytest.raises(TypeError, match="which its decorator fills in"):
        run(reap(term=None))
    assert repr(locker.elect(name)) == f"<locker.Election shop:leader:{name}>"


@asyncio_only
def test_margin_is_a_fifth_of_the_lease(name: str, run: Run) -> None:
    async def remaining(term: Guard) -> float:
        return term.remaining

    with_margin, without = Locker("memory://", stop_before=1), Locker("memory://", stop_before=0)
    for locker, options, longest in (
        (Locker("memory://"), {"lease": 100}, 80),
        (without, {"lease": 100}, 80),
        (with_margin, {"lease": 100}, 99),
        (with_margin, {"lease": 100, "stop_before": 30}, 70),
        (with_margin, {"lease": 100, "stop_before": 0}, 100),
    ):
        left = run(locker.elect(name, **options).run(remaining))  # type: ignore[arg-type]
        assert longest - 5 < left <= longest


# The end of a term


def test_lost_term_cancels_the_body_and_begins_again(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    steps: list[object] = []
    fences: list[int] = []

    @locker.leader("reaper", guard="term")
    async def reap(db: str, *, batches: int, term: Guard) -> int:
        steps.append((db, batches))
        fences.append(term.fence)
        if len(fences) == 3:
            return batches
        assert control.lose(locker.elect("reaper"))
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")
        return 0

    async def main() -> None:
        assert await reap("db", batches=4) == 4
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(main())
    assert steps == [("db", 4), "ended", ("db", 4), "ended", ("db", 4)]
    assert fences == sorted(set(fences))


def test_evicted_leader_is_elected_again(redis: Redis, name: str, run: Run) -> None:
    locker, fences = Locker(redis.url), list[int]()

    async def body(term: Guard) -> list[int]:
        fences.append(term.fence)
        if len(fences) < 3:
            redis.client.delete(term.key)
            await for_ever()
        return fences

    assert run(locker.elect(name, lease=0.5).run(body)) == sorted(set(fences))
    assert len(fences) == 3


def test_body_ends_before_the_next_campaign(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    election = locker.elect("reaper")

    async def main() -> None:
        cleans_up, clean, fences = asyncio.Event(), asyncio.Event(), list[int]()

        async def body(term: Guard) -> None:
            fences.append(term.fence)
            if len(fences) == 1:
                try:
                    await for_ever()
                finally:
                    cleans_up.set()
                    await clean.wait()

        other = Term()
        one = asyncio.create_task(election.run(body))
        await until(lambda: _true(fences))
        two = asyncio.create_task(election.run(other))
        await waiting(locker, election, 1)
        assert control.lose(election)
        await cleans_up.wait()
        await other.begun.wait()
        # Nobody waits: the former leader does not ask before its body has ended.
        await waiting(locker, election, 0)
        clean.set()
        await waiting(locker, election, 1)
        other.stop.set()
        await asyncio.gather(one, two)
        assert fences[0] < other.fences[0] < fences[1]

    run(main())


async def _true(value: object) -> bool:
    return bool(value)


@asyncio_only
def test_longest_term_ends_for_the_next_candidate(url: str, name: str, run: Run) -> None:
    locker, led = Locker(url), list[tuple[int, int]]()

    async def main() -> None:
        async def lead(candidate: int) -> None:
            async def body(term: Guard) -> None:
                led.append((candidate, term.fence))
                if len(led) < 4:
                    await for_ever()

            await locker.elect(name, lease=0.2, max_hold=0.2).run(body)

        await asyncio.gather(lead(1), lead(2))

    run(main())
    assert [candidate for candidate, _ in led[:3]] in ([1, 2, 1], [2, 1, 2])
    assert [fence for _, fence in led] == sorted({fence for _, fence in led})


def test_body_that_swallows_its_cancel_leads_again(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    calls: list[int] = []

    async def body(term: Guard) -> int:
        calls.append(term.fence)
        if len(calls) == 1:
            control.lose(term)
            try:
                await for_ever()
            except asyncio.CancelledError:
                return 0
        return len(calls)

    assert run(locker.elect("reaper").run(body)) == 2


def test_result_counts_if_the_release_finds_a_loss(
    locker_testing: Testing, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    locker, control = locker_testing
    calls: list[int] = []

    async def body(term: Guard) -> str:
        calls.append(term.fence)
        control.lose(term)
        return "done"

    with caplog.at_level(logging.WARNING, "locker"):
        assert run(locker.elect("reaper").run(body)) == "done"
    assert len(calls) == 1
    assert "was lost" in caplog.text


def test_failed_body_passes_its_error_on_and_frees(url: str, name: str, run: Run) -> None:
    locker = Locker(url)

    @locker.leader(name, lease=60, on_error=lambda error: "refused")
    async def fail(error: Exception) -> None:
        raise error

    async def main() -> None:
        for error in (ZeroDivisionError(), TimedOut("of another call"), Lost("another lock"), Unavailable("a mail")):
            with pytest.raises(type(error)) as raised:
                await fail(error)
            assert raised.value is error
            assert await is_free(locker, locker.elect(name))

    run(main())


def test_error_during_the_cancellation_is_passed_on(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing

    @locker.leader("reaper", guard="term")
    async def reap(term: Guard) -> None:
        control.lose(term)
        try:
            await for_ever()
        finally:
            raise KeyError("clean-up")

    with pytest.raises(KeyError) as raised:
        run(reap())
    assert "lost" in raised.value.__notes__[0]


def test_cancel_ends_the_body_before_the_term(url: str, name: str, run: Run) -> None:
    locker = Locker(url, lease=60)
    election = locker.elect(name)

    async def main() -> None:
        begun, held = asyncio.Event(), list[int]()

        @locker.leader(name, guard="term")
        async def reap(term: Guard) -> None:
            begun.set()
            try:
                await for_ever()
            finally:
                seen = await locker.inspect_async(election)
                assert term.is_held
                assert seen is not None
                held.extend(holder.fence - term.fence for holder in seen.holders)

        task = asyncio.create_task(reap())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held == [0]
        await until(lambda: is_free(locker, election))

    run(main())


def test_cancelled_candidate_leaves_the_queue(url: str, name: str, run: Run) -> None:
    locker = Locker(url, lease=60)
    election = locker.elect(name)

    async def main() -> None:
        first, second = Term(), Term()
        one = asyncio.create_task(election.run(first))
        await first.begun.wait()
        other = asyncio.create_task(election.run(second))
        await waiting(locker, election, 1)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        await waiting(locker, election, 0)
        first.stop.set()
        await one
        await until(lambda: is_free(locker, election))
        assert not second.begun.is_set()

    run(main())


def test_candidate_waits_for_the_end_of_an_outage(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing

    async def body(term: Guard) -> bool:
        return term.is_held

    async def main() -> None:
        with control.outage():
            candidate = asyncio.create_task(locker.elect("reaper").run(body))
            with pytest.raises(Unavailable):
                await locker.lock("other", timeout=0).acquire_async()
            await asyncio.sleep(0)
            assert not candidate.done()
        assert await candidate

    run(main())


def test_trio_leads_again_after_a_loss(locker_testing: Testing) -> None:
    locker, control = locker_testing
    fences: list[int] = []

    @locker.leader("reaper", guard="term")
    async def reap(db: str, term: Guard) -> str:
        fences.append(term.fence)
        if len(fences) == 1:
            control.lose(term)
            await trio.sleep_forever()
        return db

    async def main() -> None:
        with trio.fail_after(GENEROUS):
            assert await reap("db") == "db"

    trio.run(main)
    assert fences == sorted(set(fences))
    assert len(fences) == 2


# What is refused


@asyncio_only
def test_plain_function_cannot_lead(run: Run) -> None:
    locker = Locker("memory://")

    def plain(term: Guard) -> None:
        raise AssertionError

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    why = r"plain\(\): `leader` needs an async function: a plain one cannot be stopped when the lease is lost"
    with pytest.raises(Misused, match=why):
        locker.leader("reaper")(plain)
    with pytest.raises(Misused, match=why):
        run(locker.elect("reaper").run(plain))  # type: ignore[type-var]
    for other in (generator, async_generator, Term, staticmethod(plain), 7):
        with pytest.raises(Misused):
            locker.leader("reaper")(other)  # type: ignore[arg-type]
    with pytest.raises(Misused, match=r"@\.\.leader\('reaper'\)"):
        locker.leader(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "option",
    [
        {"timeout": 1},
        {"max_retry": 1},
        {"retry_delay": 1},
        {"each": ("a", "b")},
        {"args": "a"},
        {"mode": "read"},
        {"release": "on_expiry"},
        {"on_lost": "error"},
    ],
    ids=str,
)
def test_option_of_a_hold_is_refused_by_name(option: dict[str, Any]) -> None:
    locker, (name,) = Locker("memory://"), option
    for election in (locker.leader, locker.elect):
        with pytest.raises(Misused, match=f"an election has no option {name}: "):
            election("reaper", **option)  # type: ignore[operator]


@asyncio_only
def test_wrong_values_are_refused(run: Run) -> None:
    locker = Locker("memory://", lease=10)

    async def body(term: Guard) -> None:
        raise AssertionError

    for options, why in (
        ({"lease": 0}, "lease"),
        ({"lease": "soon"}, "lease"),
        ({"stop_before": 6}, "stop_before 6s is more than half of the lease 10s"),
        ({"max_hold": 1}, "max_hold"),
        ({"max_hold": 20, "min_hold": 21}, "min_hold"),
        ({"max_hold": 20, "renew": False}, "max_hold"),
        ({"note": "two\nlines"}, "note"),
        ({"note": 7}, "note"),
    ):
        with pytest.raises(Misused, match=why):
            locker.leader("reaper", **options)  # type: ignore[call-overload]
        with pytest.raises(Misused, match=why):
            run(locker.elect("reaper", **options).run(body))  # type: ignore[arg-type]
    for election in (locker.leader, locker.elect):
        with pytest.raises(TypeError, match="there is no option 'leese'"):
            election("reaper", leese=1)  # type: ignore[operator]
        for name in ("", None, 7):
            with pytest.raises(Misused, match="name"):
                election(name)  # type: ignore[operator]
    with pytest.raises(Misused, match="there is no such parameter"):
        locker.leader("reaper", guard="lease")(body)


def test_leader_does_not_wait_for_itself(url: str, name: str, run: Run) -> None:
    locker = Locker(url)

    @locker.leader(name)
    async def lead() -> None:
        with pytest.raises(Misused, match="would wait for itself"):
            await locker.elect(name).run(never)
        await lead()

    async def never(term: Guard) -> None:
        raise AssertionError

    with pytest.raises(Misused) as raised:
        run(lead())
    assert raised.value.key == f"leader:{name}"
    assert run(is_free(locker, locker.elect(name)))


def test_candidate_in_a_cycle_gets_deadlock(url: str, name: str, run: Run) -> None:
    locker = Locker(url, lease=60, timeout=GENEROUS)
    errors: list[Deadlock] = []

    async def main() -> None:
        leads, holds = asyncio.Event(), asyncio.Event()

        async def body(term: Guard) -> None:
            leads.set()
            await holds.wait()
            async with locker.lock(name):
                pass

        async def late(term: Guard) -> None:
            assert errors

        async def candidate() -> None:
            await leads.wait()
            async with locker.lock(name):
                holds.set()
                await locker.elect(name).run(late)

        ended = await asyncio.gather(locker.elect(name).run(body), candidate(), return_exceptions=True)
        errors.extend(error for error in ended if isinstance(error, Deadlock))
        assert len(errors) == 1, ended

    run(main())


@asyncio_only
@pytest.mark.parametrize("is_async", [False, True])
def test_on_error_gets_why_a_call_is_not_elected(name: str, run: Run, is_async: bool) -> None:
    locker = Locker("memory://", prefix="shop:")
    other = locker._native.semaphore(_native.Key(locker.elect(name).key), 1).wait()

    async def told(error: Exception) -> type[Exception]:
        return type(error)

    @locker.leader(name, on_error=told if is_async else type)
    async def lead() -> None:
        raise AssertionError

    @locker.leader(name)
    async def fail() -> None:
        raise AssertionError

    assert run(lead()) is Conflict
    with pytest.raises(Conflict) as raised:
        run(fail())
    assert raised.value.function == name
    other.release().wait()


# Observers


async def shown(observer: Observer, condition: Callable[[Leader | None], bool]) -> Leader | None:
    """Waits until the observer shows such a leader. No fence is lower than those before."""
    highest = 0
    while not condition(leader := observer.leader):
        if leader is not None:
            assert leader.fence >= highest
            highest = leader.fence
        await observer.changed_async()
    return leader


@asyncio_only
def test_observer_sees_each_leader_with_its_note(every_url: str, name: str, run: Run) -> None:
    locker = Locker(every_url, note="of the locker")

    async def main() -> None:
        observer = await locker.elect(name, lease=1).observe_async()
        assert observer.leader is None
        seen: list[Leader] = []
        for note in ("http://10.0.0.7:80", None):
            body = Term()
            led = asyncio.create_task(locker.elect(name, note=note).run(body))
            expected = note or "of the locker"
            leader = await shown(observer, lambda leader, note=expected: leader is not None and leader.note == note)
            assert leader is not None
            assert [leader.fence] == body.fences
            seen.append(leader)
            body.stop.set()
            await led
        assert await shown(observer, lambda leader: leader is None) is None
        assert seen[0] != seen[1]
        assert seen[0].fence < seen[1].fence
        for leader in seen:
            if every_url.startswith(("etcd", "zk")):
                assert leader.since is None
            else:
                assert leader.since is not None
                assert abs(datetime.now(UTC) - leader.since) < timedelta(seconds=GENEROUS)

    run(main())


@asyncio_only
def test_observer_never_goes_back(url: str, name: str, run: Run) -> None:
    locker = Locker(url)

    async def main() -> None:
        fences: list[int] = []

        async def lead() -> None:
            async def body(term: Guard) -> None:
                fences.append(term.fence)
                await asyncio.sleep(0)

            while not enough.is_set():
                await locker.elect(name).run(body)

        async def observe() -> list[int]:
            observer = await locker.elect(name, lease=1).observe_async()
            shown = [observer.leader]
            while len(shown) < 4:
                await observer.changed_async()
                shown.append(observer.leader)
            enough.set()
            return [leader.fence for leader in shown if leader is not None]

        enough = asyncio.Event()
        *_, observed = await asyncio.gather(lead(), lead(), observe())
        assert observed == sorted(observed)
        assert set(observed) <= set(fences)

    run(main())


def test_observer_without_a_loop(name: str) -> None:
    locker = Locker("memory://")
    with pytest.raises(TimedOut, match="the leader has not changed"):
        locker.elect(name).observe().changed(timeout=0.01)

    async def main() -> None:
        body = Term()
        led = asyncio.create_task(locker.elect(name, note="a").run(body))
        await body.begun.wait()
        observer = await asyncio.to_thread(locker.elect(name, lease=1).observe)
        while (leader := observer.leader) is None or leader.note is None:
            await asyncio.to_thread(observer.changed)
        assert repr(leader) == f'<Leader fence={body.fences[0]} note="a">'
        assert repr(observer) == f"<locker.Observer leader:{name}>"
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(observer)
        body.stop.set()
        await led

    asyncio.run(asyncio.wait_for(main(), GENEROUS))


def test_observer_reports_an_outage(locker_testing: Testing) -> None:
    locker, control = locker_testing
    with control.outage(), pytest.raises(Unavailable):
        locker.elect("reaper").observe()
    observer = locker.elect("reaper").observe()
    assert observer.leader is None
    with locker.lock("other"):
        eventually(lambda: locker.inspect("lock:other"), "the lock")
