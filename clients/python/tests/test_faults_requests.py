"""One request in many bodies at once, and interrupts around a body."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import fastapi
import httpx
import pytest
from servers import GENEROUS

import locker as package
from locker import Guard, Locker, LockerError, Misused, Request

FOLDER = str(Path(package.__file__).parent)


def slot(request: Request[Guard]) -> Iterator[Guard]:
    with request as guard:
        yield guard


@pytest.fixture
def threads() -> Iterator[list[ThreadPoolExecutor]]:
    """Three pools of one thread each."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two, ThreadPoolExecutor(1) as three:
        yield [one, two, three]


def test_body_that_ends_in_another_thread_releases_its_own_guard(
    name: str, threads: list[ThreadPoolExecutor]
) -> None:
    request = Locker("memory://").semaphore(name, 2)
    bodies = [slot(request), slot(request)]
    guards = [thread.submit(next, body).result() for thread, body in zip(threads, bodies, strict=False)]
    # The thread of the second body, and one that has entered none.
    for number, thread in ((0, threads[1]), (1, threads[2])):
        thread.submit(next, bodies[number], None).result()
        assert [guard.is_held for guard in guards] == [False, number == 0]


def test_generators_that_are_left_release_their_own_guards(name: str) -> None:
    request = Locker("memory://").semaphore(name, 5)

    async def items() -> AsyncIterator[Guard]:
        async with request as guard:
            while True:
                yield guard

    async def first() -> Guard:
        async for guard in items():
            return guard
        raise AssertionError

    async def main() -> list[Guard]:
        return await asyncio.gather(first(), first())

    # The loop closes them in tasks of its own.
    guards = asyncio.run(main())
    assert [guard.is_held for guard in guards] == [False, False]


def test_dependencies_of_fastapi_share_a_semaphore(name: str) -> None:
    permits = Locker("memory://", timeout=GENEROUS).semaphore(name, 4)
    guards: list[Guard] = []

    def permit() -> Iterator[Guard]:
        with permits as guard:
            guards.append(guard)
            yield guard

    app = fastapi.FastAPI()

    @app.get("/")
    async def index(guard: Any = fastapi.Depends(permit)) -> str:  # noqa: B008
        await asyncio.sleep(0)
        guard.check()
        return "ok"

    async def main() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            responses = await asyncio.gather(*(client.get("/") for _ in range(60)))
        return [response.status_code for response in responses]

    assert asyncio.run(main()) == [200] * 60
    assert len(guards) == 60
    assert not any(guard.is_held for guard in guards)


def test_body_that_nobody_can_tell_is_refused_and_released(name: str, threads: list[ThreadPoolExecutor]) -> None:
    request = Locker("memory://").semaphore(name, 2)
    stacks = [contextlib.ExitStack(), contextlib.ExitStack()]
    guards = [
        thread.submit(stack.enter_context, request).result() for thread, stack in zip(threads, stacks, strict=False)
    ]
    with pytest.raises(Misused, match="make a request for each"):
        threads[2].submit(stacks[0].close).result()
    threads[2].submit(stacks[1].close).result()
    assert [guard.is_held for guard in guards] == [False, False]
    with pytest.raises(Misused, match="not in a body"):
        request.__exit__(None, None, None)


def test_stacks_of_one_thread_or_task_share_a_request(name: str) -> None:
    request = Locker("memory://").semaphore(name, 9)

    async def main() -> None:
        async def use() -> None:
            async with contextlib.AsyncExitStack() as stack:
                guard = await stack.enter_async_context(request)
                other = stack.enter_context(request)
                await asyncio.sleep(0.01)
                guard.check()
                other.check()
            assert not guard.is_held
            assert not other.is_held

        await asyncio.gather(use(), use(), use())

    asyncio.run(main())


def test_plain_body_that_should_be_cancelled_is_refused_before_it_waits(name: str) -> None:
    locker = Locker("memory://", timeout=GENEROUS)
    with locker.lock(name):
        waiting = threading.Thread(target=enter_plainly, args=(locker.lock(name, on_lost="cancel"),))
        waiting.start()
        waiting.join(GENEROUS / 2)
        assert not waiting.is_alive()


def enter_plainly(request: Request[Guard]) -> None:
    with pytest.raises(Misused, match="async with"), request:
        raise AssertionError


class Interrupt:
    """Raises ``KeyboardInterrupt`` at the n-th step of the package's own code."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_opcodes = True
        if event in ("line", "opcode"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted(call: Callable[[], object], number: int) -> bool:
    """Calls it, and tells whether it has so many steps."""
    interrupt, before = Interrupt(number), sys.gettrace()
    try:
        sys.settrace(interrupt)
        try:
            call()
        finally:
            sys.settrace(before)
    except KeyboardInterrupt:
        pass
    return interrupt.left <= 0


@pytest.mark.filterwarnings("ignore:.* was dropped:ResourceWarning")
def test_interrupt_anywhere_leaves_nothing_held(name: str) -> None:
    locker = Locker("memory://")

    @locker.lock_on_argument(5, name=name)
    def decorated() -> None:
        pass

    def plain() -> None:
        with locker.lock(name):
            pass

    for call, request in ((plain, locker.lock(name)), (decorated, locker.lock_on(name))):
        number = 1
        while interrupted(call, number):
            locker.settled()
            guard = request.try_acquire()
            assert guard is not None, number
            guard.release()
            number += 7
        assert number > 50


def test_interrupt_is_not_lost_as_a_wait_begins(name: str) -> None:
    locker = Locker("memory://", timeout=GENEROUS)

    def interrupt(frame: FrameType, _event: str, _: object) -> None:
        if frame.f_code is threading.main_thread.__code__:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = sys.gettrace()
    with locker.lock_on(name):
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                threading_free(locker, name)
        finally:
            sys.settrace(before)


def threading_free(locker: Locker, name: str) -> None:
    # Not inside of the body: the call would be refused.
    package._bodies.forget()  # type: ignore[attr-defined]
    locker.lock_on(name).acquire()


def test_guard_that_is_dropped_warns(name: str) -> None:
    locker = Locker("memory://")
    with pytest.warns(ResourceWarning, match=f"lock:{name} was dropped while it was held"):
        assert locker.lock(name).try_acquire()
    with pytest.warns(ResourceWarning, match="was dropped"):
        locker.lock_all([f"{name}-1", f"{name}-2"]).acquire()
    gc.collect()
    locker.settled()
    with locker.lock_all([name, f"{name}-1"], timeout=0) as guards:
        # Their holds are those of the guards.
        assert len(guards.each) == 2


def test_guard_that_ends_otherwise_does_not_warn(name: str) -> None:
    locker = Locker("memory://")
    locker.lock(name).acquire().release()
    locker.lock(f"{name}-1", release="on_expiry", lease=0.1).acquire()
    lost = locker.lock(f"{name}-2", lease=0.05, renew=False).acquire()
    asyncio.run(lost.lost_async())
    del lost
    with locker.lock(name):
        pass
    with contextlib.suppress(LockerError), locker.lock(name):
        raise LockerError("of the body")
    held = locker.lock(name).acquire()
    process = os.fork()
    if process == 0:
        warnings.simplefilter("error")
        sys.unraisablehook = lambda _: os._exit(1)
        del held
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0
    held.release()
    gc.collect()


def test_subinterpreter_is_refused() -> None:
    interpreters = pytest.importorskip("_xxsubinterpreters")
    other = interpreters.create(isolated=False)
    try:
        program = f"import sys; sys.path[:] = {sys.path!r}\nimport locker"
        with pytest.raises(interpreters.RunFailedError, match="main interpreter only"):
            interpreters.run_string(other, program)
    finally:
        interpreters.destroy(other)
