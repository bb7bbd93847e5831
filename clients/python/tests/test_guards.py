"""Guards and requests, by hand."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import threading
import time
from collections.abc import Callable

import pytest
from servers import GENEROUS, Redis, eventually

from locker import Guard, Guards, Locker, LockerError, Lost, Misused, NotHeld, TimedOut


def test_guard_tells_what_it_holds(every_url: str, name: str) -> None:
    locker = Locker(every_url)
    with locker.lock(name, lease=30) as guard:
        assert guard.key == f"lock:{name}"
        assert 20 < guard.remaining <= 30
        assert guard.is_held
        assert len(guard.id) == 32
        guard.check()
        assert locker.lock(name).try_acquire() is None
        assert repr(guard) == f"<locker.Guard lock:{name} fence={guard.fence} held>"
    assert not guard.is_held
    assert guard.remaining == 0
    with locker.lock(name) as later:
        assert later.fence > guard.fence


def test_others_see_who_holds_and_waits(every_url: str, name: str) -> None:
    locker = Locker(every_url, note="web-3", timeout=GENEROUS)
    assert locker.inspect(f"lock:{name}") is None
    guard = locker.lock(name).acquire()
    waiting = threading.Thread(target=lambda: locker.lock(name).acquire().release())
    waiting.start()

    def seen() -> bool:
        found = asyncio.run(locker.inspect_async(guard.key))
        assert found is not None
        assert [holder.fence for holder in found.holders] == [guard.fence]
        # The note is told in the background.
        return (found.waiting, found.holders[0].note) == (1, "web-3")

    eventually(seen)
    guard.release()
    waiting.join(GENEROUS)


def test_time_out_names_the_holder(every_url: str, name: str) -> None:
    locker = Locker(every_url, note="web-3")
    guard = locker.lock(name).acquire()

    @locker.lock_on_argument(name=name, timeout=1)
    def decorated() -> None:
        return None

    def blocked(call: Callable[[], object]) -> TimedOut | None:
        with pytest.raises(TimedOut) as caught:
            call()
        # A busy store may tell too late.
        error = caught.value
        return error if error.blocked and error.blocked.holders else None

    error = eventually(lambda: blocked(lambda: locker.lock(name, timeout=1).acquire()))
    assert error.blocked is not None
    (holder,) = error.blocked.holders
    assert (holder.fence, holder.note, holder.permits) == (guard.fence, "web-3", 1)
    assert (error.blocked.ahead, error.blocked.place) == (0, None)
    assert str(error).endswith(str(error.blocked))
    assert str(error.blocked).startswith("held by web-3")
    copied = pickle.loads(pickle.dumps(error)).blocked
    assert [one.fence for one in copied.holders] == [guard.fence]
    assert str(copied) == str(error.blocked)
    with pytest.raises(TimedOut) as short:
        locker.lock(name, timeout=0).acquire()
    assert short.value.blocked is None
    guard.release()

    # Not by `with`: a call inside would wait for itself.
    guard = locker.lock_on(name).acquire()
    error = eventually(lambda: blocked(decorated))
    guard.release()
    assert error.blocked is not None
    assert error.blocked.place is not None
    assert "test_guards.py:" in error.blocked.place


def test_coroutines_have_the_same_forms(every_url: str, name: str) -> None:
    locker = Locker(every_url)

    async def run() -> None:
        async with locker.lock(name) as guard:
            assert guard.is_held
            assert await locker.lock(name).try_acquire_async() is None
        assert not guard.is_held
        again = await locker.lock(name).try_acquire_async()
        assert again is not None
        assert again.fence > guard.fence
        await again.release_async()
        with pytest.raises(NotHeld):
            await again.release_async()
        async with await locker.lock(name).acquire_async() as third:
            assert third.is_held
        await locker.ping_async()
        await locker.settled_async()

    asyncio.run(run())
    locker.ping()
    locker.settled()


def test_release_ends_the_hold_once(url: str, name: str) -> None:
    locker = Locker(url)
    guard = locker.lock(name).acquire()
    guard.release()
    assert not guard.is_held
    for again in (guard.release, guard.check):
        with pytest.raises(NotHeld):
            again()
    with locker.lock(name) as inside:
        inside.release()
        other = locker.lock(name).try_acquire()
        assert other is not None
        other.release()
    with pytest.raises(ValueError, match="of the body"), locker.lock(name):
        raise ValueError("of the body")
    with locker.lock(name, timeout=0):
        pass


def test_released_guard_is_not_entered_again(url: str, name: str) -> None:
    locker = Locker(url)
    all_names = [f"{name}-1", f"{name}-2"]
    bodies: list[str] = []

    def again(held: Guard | Guards, key: str, error: type[LockerError] = NotHeld) -> None:
        with pytest.raises(error) as raised, held:
            bodies.append("plain")
        assert (raised.value.key, key in str(raised.value)) == (key, True)
        with pytest.raises(error) as raised:
            asyncio.run(again_async(held))
        assert raised.value.key == key

    async def again_async(held: Guard | Guards) -> None:
        async with held:
            bodies.append("async")

    with locker.lock(name) as guard:
        pass
    again(guard, guard.key)
    released = locker.lock(name).acquire()
    released.release()
    again(released, guard.key)
    with locker.lock_all(all_names) as guards:
        pass
    again(guards, f"lock:{name}-1")
    # One of them is enough.
    guards = locker.lock_all(all_names).acquire()
    guards.each[1].release()
    again(guards, f"lock:{name}-2")
    guards.release()
    assert bodies == []

    async def main() -> None:
        async with locker.lock(name) as held:
            await held.release_async()
        with pytest.raises(NotHeld):
            await again_async(held)

    asyncio.run(main())
    with locker.lock(name, release="on_expiry") as outlasting:
        pass
    again(outlasting, outlasting.key)
    assert bodies == []


def test_guard_is_entered_while_it_is_held(url: str, name: str) -> None:
    locker = Locker(url)
    with locker.lock(name).acquire() as guard, pytest.raises(Misused, match="in a body already"), guard:
        raise AssertionError
    with locker.lock_all([f"{name}-1", f"{name}-2"]).acquire() as guards:
        assert guards.is_held
    # A loss is told at the end of the body, as ever.
    lost = locker.lock(name, lease=0.05, renew=False, on_lost="continue").acquire()
    asyncio.run(lost.lost_async())
    with lost:
        assert not lost.is_held


def test_guard_that_nobody_has_is_released(url: str, name: str) -> None:
    locker = Locker(url)
    guard = locker.lock(name).acquire()
    assert guard.is_held
    with pytest.warns(ResourceWarning, match=f"lock:{name} was dropped"):
        del guard
        gc.collect()
    locker.settled()
    with locker.lock(name, timeout=0):
        pass


def test_all_locks_or_none(every_url: str, name: str) -> None:
    locker = Locker(every_url)
    names = [f"{name}-{number}" for number in (3, 1, 2)]
    with locker.lock_all(names) as guards:
        assert [guard.key for guard in guards.each] == [f"lock:{name}-{number}" for number in (1, 2, 3)]
        assert guards.is_held
        assert guards.remaining > 5
        guards.check()
        assert all(locker.lock(name).try_acquire() is None for name in names)
        assert locker.lock_all(names[:1]).try_acquire() is None
    each = [locker.lock(name).acquire() for name in names]
    for guard in each:
        guard.release()
    with pytest.raises(Misused, match="not one name"):
        locker.lock_all(name)


def test_semaphore_and_read_write_lock(every_url: str, name: str) -> None:
    locker = Locker(every_url)
    pool = locker.semaphore(name, 3)
    with pool, locker.semaphore(name, 3, permits=2) as two:
        assert two.key == f"semaphore:{name}"
        assert pool.try_acquire() is None
    with locker.read_lock(f"{name}-rw") as one, locker.read_lock(f"{name}-rw") as other:
        assert one.fence != other.fence
        assert locker.write_lock(f"{name}-rw").try_acquire() is None
    with locker.write_lock(f"{name}-rw"):
        assert locker.read_lock(f"{name}-rw").try_acquire() is None


def test_request_is_used_by_several_threads_and_tasks(url: str, name: str) -> None:
    request = Locker(url).lock(name, timeout=GENEROUS)
    inside, seen = 0, []

    def body() -> None:
        nonlocal inside
        inside += 1
        seen.append(inside)
        time.sleep(0)
        inside -= 1

    def run() -> None:
        for _ in range(10):
            with request:
                body()

    async def task() -> None:
        async with request:
            body()
            await asyncio.sleep(0)

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(20)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    threads.append(threading.Thread(target=lambda: asyncio.run(tasks())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS)
    assert seen == [1] * 60


def test_call_inside_a_body_by_hand_is_refused_at_once(url: str, name: str) -> None:
    request = Locker(url).lock(name)

    async def run() -> None:
        async with request:
            with pytest.raises(Misused):
                await request.acquire_async()
            # A task is no part of the body, and waits.
            with pytest.raises(TimedOut):
                await asyncio.create_task(Locker(url).lock(name, timeout=0.05).acquire_async())

    with request:
        with pytest.raises(Misused):
            request.acquire()
        with pytest.raises(Misused):
            asyncio.run(run())
    asyncio.run(run())


def test_body_is_left_in_another_task_than_entered(name: str) -> None:
    request = Locker("memory://").lock(name, on_lost="continue")

    async def run() -> None:
        await asyncio.create_task(request.__aenter__())
        await asyncio.create_task(request.__aexit__(None, None, None))
        async with request:
            pass

    asyncio.run(run())


def test_error_of_the_release_never_hides_that_of_the_body(
    redis: Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    locker = Locker(redis.url)
    with pytest.raises(ValueError, match="of the body") as failed, locker.lock(name) as guard:
        redis.client.delete(guard.key)
        raise ValueError("of the body")
    (note,) = failed.value.__notes__
    assert note.startswith(f"lock:{name}: lost: ")
    assert f"the hold was lost: {note}" in caplog.text
    with pytest.raises(Lost) as raised, locker.lock(name) as guard:
        redis.client.delete(guard.key)
    assert raised.value.key == f"lock:{name}"
    with caplog.at_level(logging.WARNING), locker.lock(name, on_lost="continue") as guard:
        caplog.clear()
        redis.client.delete(guard.key)
    assert f"the hold was lost: lock:{name}: lost: " in caplog.text


def test_error_that_takes_no_note_is_that_of_the_body_all_the_same(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Frozen(Exception):
        def add_note(self, note: str, /) -> None:
            raise AttributeError("frozen")

    lost = Locker("memory://").lock(name, lease=0.05, renew=False).acquire()
    asyncio.run(lost.lost_async())
    with pytest.raises(Frozen), lost:
        raise Frozen
    assert "the hold was lost: " in caplog.text


def test_release_that_fails_is_no_loss(redis: Redis, name: str, caplog: pytest.LogCaptureFixture) -> None:
    guard = Locker(redis.url, command_timeout=0.05, lease=60).lock(name).acquire()
    redis.client.execute_command("CLIENT", "PAUSE", "1000", "ALL")
    with pytest.raises(ValueError, match="of the body") as failed, guard:
        raise ValueError("of the body")
    assert "the release failed: " in caplog.text
    assert not hasattr(failed.value, "__notes__")


def test_cancel_is_for_coroutines(name: str) -> None:
    with pytest.raises(Misused, match="async with"), Locker("memory://").lock(name, on_lost="cancel"):
        raise AssertionError
    with pytest.raises(Misused, match="on_lost"):
        Locker("memory://").lock(name, on_lost="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="leese"):
        Locker("memory://").lock(name, leese=1).acquire()  # type: ignore[call-arg]


def test_guard_cannot_be_pickled_or_copied(name: str) -> None:
    locker = Locker("memory://")
    with locker.lock(name) as guard, locker.lock_all([f"{name}-a"]) as guards:
        for held in (guard, guards):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="a guard cannot be pickled"):
                    copied(held)


def test_lease_is_renewed_and_max_hold_ends_it(url: str, name: str) -> None:
    locker = Locker(url)
    guard: Guard = locker.lock(name, lease=0.3).acquire()
    renewed_until = time.monotonic() + 0.9
    eventually(lambda: time.monotonic() > renewed_until)
    guard.check()
    guard.release()
    guard = locker.lock(name, lease=0.2, max_hold=0.4).acquire()
    eventually(lambda: not guard.is_held)
    with pytest.raises(Lost):
        guard.check()
    guard = locker.lock(name, lease=0.2, renew=False).acquire()
    asyncio.run(asyncio.wait_for(guard.lost_async(), GENEROUS))
    with pytest.raises(Lost):
        guard.release()
