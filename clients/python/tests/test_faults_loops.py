"""Loops that end with something pending, wake-ups that meet others, and losses that meet the end of a body."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing
import uvloop
from servers import GENEROUS, eventually

from locker import Locker, Lost, Misused, _waiting

pytestmark = pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")

Loop = Callable[[], asyncio.AbstractEventLoop]


class Unwatched(asyncio.SelectorEventLoop):
    """Watches no descriptors, as the default loop on Windows."""

    def add_reader(self, *_: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("new_loop", "closed"),
    [
        (asyncio.SelectorEventLoop, True),
        (asyncio.SelectorEventLoop, False),
        (Unwatched, True),
        (Unwatched, False),
        (uvloop.new_event_loop, True),
    ],
    ids=["closed", "dropped", "unwatched-closed", "unwatched-dropped", "uvloop-closed"],
)
def test_loop_that_ends_keeps_neither_body_nor_waiter(url: str, name: str, new_loop: Loop, closed: bool) -> None:
    locker = Locker(url, timeout=GENEROUS)
    waited_for = locker.lock(f"{name}-2").acquire()

    async def body() -> None:
        async with locker.lock(name):
            await asyncio.get_running_loop().create_future()

    async def waiter() -> None:
        async with locker.lock(f"{name}-2"):
            raise AssertionError

    async def main() -> None:
        tasks = [asyncio.ensure_future(body()), asyncio.ensure_future(waiter())]
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        while not (await held(name) and await waited(f"{name}-2")):
            await asyncio.sleep(0.001)

    async def held(name: str) -> bool:
        return await locker.inspect_async(f"lock:{name}") is not None

    async def waited(name: str) -> bool:
        found = await locker.inspect_async(f"lock:{name}")
        return found is not None and found.waiting == 1

    loop = new_loop()
    loop.run_until_complete(main())
    if closed:
        loop.close()
    del loop

    def is_collected() -> bool:
        gc.collect()
        locker.settled()
        found = locker.inspect(waited_for.key)
        return found is not None and found.waiting == 0 and locker.inspect(f"lock:{name}") is None

    # A pump that wakes the loop has it for that time.
    eventually(is_collected)
    waited_for.release()


def test_pending_task_that_nobody_else_keeps_goes_on(name: str) -> None:
    locker = Locker("memory://", timeout=GENEROUS)
    ended: list[str] = []

    async def waiter() -> None:
        async with locker.lock(name):
            ended.append("waiter")

    async def main() -> None:
        async with locker.lock(name):
            asyncio.ensure_future(waiter())
            await asyncio.sleep(0.01)
            gc.collect()
        while not ended:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), GENEROUS))


def test_signal_handler_that_raises_loses_no_wake_up(name: str) -> None:
    class Raised(Exception):
        pass

    locker = Locker("memory://", timeout=GENEROUS)
    guards = [locker.lock(f"{name}-{number}").acquire() for number in range(3)]
    codes = {_waiting._Port.wake.__code__, _waiting._Port.drain.__code__, _waiting._Port._wake.__code__}

    def run(step: int) -> bool:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)
        left = step

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code not in codes:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise Raised
            return trace

        async def wait_for_all() -> None:
            held = await asyncio.gather(*waiters)
            for guard in held:
                await guard.release_async()

        async def begin() -> list[asyncio.Task[Any]]:
            tasks = [asyncio.create_task(locker.lock(f"{name}-{number}").acquire_async()) for number in range(3)]
            await asyncio.sleep(0.01)
            return tasks

        waiters = loop.run_until_complete(begin())
        for guard in guards:
            guard.release()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            loop.run_until_complete(asyncio.wait_for(wait_for_all(), GENEROUS / 3))
        finally:
            sys.settrace(before)
        loop.close()
        guards[:] = [locker.lock(f"{name}-{number}").acquire() for number in range(3)]
        return left <= 0

    step = 1
    while run(step):
        step += 1
    for guard in guards:
        guard.release()
    assert step > 5


def test_wake_up_and_cancellation_of_trio_in_one_turn(name: str) -> None:
    locker = Locker("memory://", timeout=GENEROUS)

    async def waiter(scope: trio.CancelScope) -> None:
        with scope:
            async with locker.lock(name):
                pass

    async def main() -> None:
        for _ in range(20):
            guard = await locker.lock(name).acquire_async()
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waiter, scope)
                await trio.testing.wait_all_tasks_blocked(0.005)
                guard.release()
                scope.cancel()
            await locker.settled_async()
            async with locker.lock(name, timeout=0):
                pass

    trio.run(main)


def test_group_of_errors_in_a_lost_body_of_trio_releases(name: str) -> None:
    locker = Locker("memory://")

    async def failing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError(name)

    async def body() -> None:
        async with locker.lock(name, lease=0.1, max_hold=0.1), trio.open_nursery() as nursery:
            nursery.start_soon(failing)
            await trio.sleep_forever()

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await body()
        assert raised.group_contains(KeyError)
        # It is not inside of the body any more.
        async with locker.lock(name, timeout=GENEROUS):
            with pytest.raises(Misused):
                await locker.lock(name).acquire_async()

    trio.run(main)


def test_trio_as_a_guest_of_asyncio(name: str) -> None:
    locker = Locker("memory://")

    async def guest() -> None:
        async with locker.lock(name):
            with pytest.raises(Misused):
                await locker.lock(name).acquire_async()
        with pytest.raises(Lost):
            async with locker.lock(name, lease=0.1, max_hold=0.1):
                await trio.sleep_forever()

    async def host() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        (await done).unwrap()

    asyncio.run(host())


def test_body_that_returns_after_a_loss_has_lost(name: str) -> None:
    locker = Locker("memory://")

    def late(**options: Any) -> Callable[[], Coroutine[Any, Any, str]]:
        @locker.lock_on_argument(0.05, name=name, renew=False, **options)
        async def body() -> str:
            # The loop learns of the loss only after the body.
            time.sleep(0.2)
            return "done"

        return body

    async def main() -> None:
        for options in ({}, {"on_lost": "cancel"}, {"on_lost": "error"}):
            with pytest.raises(Lost):
                await late(**options)()
        assert await late(on_lost="continue")() == "done"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.01)

    asyncio.run(main())


def test_body_that_ends_in_another_task_leaves_that_task_alone(name: str) -> None:
    request = Locker("memory://").lock(name, lease=0.1, max_hold=0.1)

    async def enter() -> None:
        await request.__aenter__()
        await asyncio.get_running_loop().create_future()

    async def leave() -> int:
        with pytest.raises(Lost):
            await request.__aexit__(None, None, None)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    async def main() -> None:
        entered = asyncio.create_task(enter())
        await asyncio.wait([entered])
        assert entered.cancelled()
        assert await asyncio.create_task(leave()) == 0

    asyncio.run(main())


def test_hubs_of_gevent_leave_no_descriptors() -> None:
    program = """
        import gc, os, threading
        import gevent
        from locker import Locker, TimedOut

        locker = Locker("memory://")
        held = locker.lock("a").acquire()

        def wait():
            try:
                locker.lock("a", timeout=0.001).acquire()
            except TimedOut:
                pass

        def hub():
            gevent.spawn(wait).join()
            gevent.get_hub().destroy(destroy_loop=True)

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        def run():
            thread = threading.Thread(target=hub)
            thread.start()
            thread.join()

        run()
        before = descriptors()
        for _ in range(20):
            run()
        assert descriptors() == before, (before, descriptors())
        held.release()
    """
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not list the descriptors of a process")
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stderr


def test_pump_of_a_loop_ends_with_it(name: str) -> None:
    locker = Locker("memory://")

    def pumps() -> int:
        return sum(thread.name == "locker-pump" for thread in threading.enumerate())

    async def main() -> None:
        async with locker.lock(name):
            pass

    for _ in range(5):
        loop = Unwatched()
        loop.run_until_complete(main())
        loop.close()
        del loop
    gc.collect()
    eventually(lambda: pumps() == 0)
