"""What the loss of a hold does to the body, and a cancellation from outside to the hold."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

import pytest
from servers import GENEROUS, Redis
from tasks import Run, for_ever

from locker import Guard, Guards, Locker, Lost, OnLost


def short(locker: Locker, **options: Any) -> Any:
    """Decorates a function that loses its hold after 0.2 s."""
    return locker.lock_on_argument(0.2, max_hold=0.2, **options)


def test_body_is_cancelled_and_the_caller_gets_lost(url: str, name: str, run: Run) -> None:
    steps: list[str] = []

    @short(Locker(url), name=name)
    async def withdraw() -> None:
        steps.append("begun")
        try:
            await for_ever()
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    async def main() -> None:
        with pytest.raises(Lost) as raised:
            await withdraw()
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert raised.value.key is not None
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        # Nothing of the cancellation is left.
        await asyncio.sleep(0.01)
        steps.append("after")

    run(main())
    assert steps == ["begun", "cancelled", "after"]


def test_hold_that_is_ended_by_others_is_lost(redis: Redis, name: str, run: Run) -> None:
    locker = Locker(redis.url, lease=0.5)

    async def main() -> None:
        with pytest.raises(Lost):
            async with locker.lock(name) as guard:
                redis.client.delete(guard.key)
                await for_ever()

    run(main())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_loss_of_one_of_several_locks_names_it(redis: Redis, name: str, run: Run, number: int) -> None:
    locker = Locker(redis.url, lease=3)
    parts = range(1, 4)

    @locker.lock_on_argument(3, name=name, each=(0, 1, 2), guard="held")
    async def transfer(*accounts: int, held: Guards) -> None:
        redis.client.delete(one_of(held))
        await for_ever()

    def one_of(held: Guards) -> str:
        keys.append(held.each[number - 1].key)
        return keys[-1]

    keys: list[str] = []

    async def main() -> None:
        with pytest.raises(Lost) as raised:
            async with locker.lock_all([f"{name}-{part}" for part in parts]) as guards:
                redis.client.delete(one_of(guards))
                await for_ever()
        assert raised.value.key == keys[-1] == f"lock:{name}-{number}"
        with pytest.raises(Lost) as raised:
            await transfer(*parts)
        assert raised.value.key == keys[-1]
        # What the body has released is not what was lost.
        with pytest.raises(Lost) as raised:
            async with locker.lock_all([f"{name}-{part}" for part in range(5)]) as guards:
                await guards.each[0].release_async()
                redis.client.delete(guards.each[number].key)
                await for_ever()
        assert raised.value.key == f"lock:{name}-{number}"

    run(main())


def test_no_task_is_made_for_a_call(url: str, name: str, run: Run) -> None:
    @Locker(url).lock_on_argument(name=name)
    async def count() -> int:
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    async def main() -> None:
        before = len(asyncio.all_tasks())
        assert await count() == before

    run(main())


def test_cancellation_from_outside_is_not_taken_for_a_loss(name: str, run: Run) -> None:
    cancelled = asyncio.Event()

    @short(Locker("memory://"), name=name)
    async def withdraw() -> None:
        try:
            await for_ever()
        finally:
            cancelled.set()
            # Both come: the loss, and the one who waits for this task.
            await asyncio.sleep(0.3)

    async def main() -> None:
        task = asyncio.create_task(withdraw())
        await cancelled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(main())


def test_timeouts_around_and_inside_work(name: str, run: Run) -> None:
    locker = Locker("memory://")

    async def main() -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.05), locker.lock(name):
                await for_ever()
        assert not isinstance(raised.value, Lost)
        with pytest.raises(Lost):
            async with asyncio.timeout(GENEROUS), locker.lock(name, lease=0.2, max_hold=0.2):
                await for_ever()
        async with locker.lock(name):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await for_ever()

    run(main())


def test_group_of_tasks_in_the_body_is_cancelled(name: str, run: Run) -> None:
    ended: list[int] = []

    async def child(number: int) -> None:
        try:
            await for_ever()
        finally:
            ended.append(number)

    @short(Locker("memory://"), name=name)
    async def withdraw() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(child(number))

    async def main() -> None:
        with pytest.raises(Lost):
            await withdraw()

    run(main())
    assert sorted(ended) == [0, 1, 2]


def test_body_that_returns_after_its_cancellation_has_lost(name: str, run: Run) -> None:
    @short(Locker("memory://"), name=name)
    async def stubborn() -> int:
        try:
            await for_ever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return 1

    # Long enough to be renewed in time: a late renewal would be the reason of the loss.
    @Locker("memory://").lock_on_argument(1.5, max_hold=1.5, name=name)
    async def failing() -> None:
        try:
            await for_ever()
        finally:
            raise ValueError("of the body")

    async def main() -> None:
        with pytest.raises(Lost):
            await stubborn()
        with pytest.raises(ValueError, match="of the body") as raised:
            await failing()
        assert ["held longer than max_hold" in note for note in raised.value.__notes__] == [True]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(main())


def test_loss_in_an_async_generator_reaches_who_closes_it(name: str, run: Run) -> None:
    locker = Locker("memory://")

    async def items(on_lost: OnLost | None = None) -> AsyncGenerator[int, None]:
        async with locker.lock(name, lease=0.05, renew=False, on_lost=on_lost):
            yield 1

    async def closing() -> None:
        async with contextlib.aclosing(items()) as each:
            async for _ in each:
                await for_ever()

    async def to_the_end() -> None:
        async for _ in items(on_lost="error"):
            await asyncio.sleep(0.1)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        for consume in (closing, to_the_end):
            with pytest.raises(Lost):
                await consume()
            assert task.cancelling() == 0
        # Nobody else's cancellation is taken for a loss.
        other = asyncio.create_task(closing())
        await asyncio.sleep(0)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other

    run(main())


def test_loss_before_the_first_wait_leaves_no_cancellation(name: str, run: Run) -> None:
    locker = Locker("memory://")

    async def main() -> None:
        guard: Guard = await locker.lock(name, lease=0.05, renew=False).acquire_async()
        await guard.lost_async()
        with pytest.raises(Lost):
            async with guard:
                pass
        await asyncio.sleep(0.01)
        guard = await locker.lock(name, lease=0.05, renew=False).acquire_async()
        await guard.lost_async()
        with pytest.raises(Lost):
            async with guard:
                await for_ever()
        await asyncio.sleep(0.01)

    run(main())


def test_continue_keeps_the_result_and_error_does_not(
    name: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    locker = Locker("memory://")

    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "done"

    def slow_plain() -> str:
        time.sleep(0.3)
        return "done"

    async def main() -> None:
        with caplog.at_level(logging.WARNING, "locker"):
            assert await short(locker, name=name, on_lost="continue")(slow)() == "done"
        assert "the hold was lost: " in caplog.text
        with pytest.raises(Lost):
            await short(locker, name=name, on_lost="error")(slow)()

    run(main())
    assert short(locker, name=name, on_lost="continue")(slow_plain)() == "done"
    with pytest.raises(Lost):
        short(locker, name=name)(slow_plain)()
    assert short(locker, name=name, on_error=lambda error: type(error))(slow_plain)() is Lost


class CancelledAt:
    """Awaits a coroutine, and cancels the task while it waits for the n-th time.

    Args:
        coroutine: What is awaited.
        number: Which wait, from 1.
        woken: Whether the wait has just ended when the cancellation comes.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, woken: bool) -> None:
        self.coroutine, self.number, self.woken = coroutine, number, woken
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        step: Callable[[], Any] = lambda: self.coroutine.send(None)
        while True:
            try:
                future = step()
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self.number:
                if self.woken and future is not None:
                    future.add_done_callback(lambda _: task.cancel())
                else:
                    asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield future
            except BaseException as error:
                step = lambda error=error: self.coroutine.throw(error)  # type: ignore[misc]
            else:
                step = lambda: self.coroutine.send(None)


@pytest.mark.parametrize("woken", [False, True], ids=["waiting", "woken"])
@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
def test_cancellation_at_each_wait_leaves_nothing_held(
    url: str, name: str, run: Run, contended: bool, woken: bool
) -> None:
    locker = Locker(url, timeout=GENEROUS)
    request = locker.lock_on(name, 1)

    @locker.lock_on_argument(10, 0, name=name)
    async def withdraw(card: int) -> None:
        await asyncio.sleep(0)

    async def cancelled_at(number: int) -> bool:
        guard = await request.acquire_async() if contended else None
        waiting = CancelledAt(withdraw(1), number, woken)

        async def call() -> None:
            await waiting

        task = asyncio.create_task(call())
        for _ in range(5):
            await asyncio.sleep(0)
        if guard is not None:
            await guard.release_async()
        await asyncio.wait([task])
        # The end of the queue: whatever was held or waited for is gone.
        async with request:
            pass
        await locker.settled_async()
        left = await request.try_acquire_async()
        assert left is not None
        await left.release_async()
        return waiting.waits >= number

    async def main() -> None:
        number = 1
        while await cancelled_at(number):
            number += 1
        # A busy machine has an answer before it is waited for.
        assert number > (2 if contended else 1)

    run(main())


def test_cancelled_task_does_not_wait_for_its_release(redis: Redis, name: str, run: Run) -> None:
    locker = Locker(redis.url)

    async def main() -> None:
        begun = asyncio.Event()

        async def body() -> None:
            async with locker.lock(name):
                begun.set()
                await for_ever()

        task = asyncio.create_task(body())
        await begun.wait()
        redis.client.execute_command("CLIENT", "PAUSE", "1000", "ALL")
        started = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert time.monotonic() - started < 0.5
        await locker.settled_async()
        async with locker.lock(name, timeout=0):
            pass

    run(main())


def test_body_is_cancelled_before_others_have_the_lock(url: str, name: str, run: Run) -> None:
    """What it has begun has until the end of the lease to arrive."""
    locker = Locker(url)
    ended: list[str] = []

    @locker.lock_on_argument(2, name=name, renew=False, stop_before=1)
    async def withdraw() -> None:
        try:
            await for_ever()
        finally:
            ended.append("stopped")

    async def main() -> float:
        asked = time.monotonic()
        with pytest.raises(Lost):
            await withdraw()
        assert ended == ["stopped"]
        async with locker.lock_on(name):
            return time.monotonic() - asked

    assert run(main()) >= 2


def test_min_hold_keeps_the_lock_also_after_an_error(url: str, name: str, run: Run) -> None:
    locker = Locker(url, stop_before=0, min_hold=0)

    @locker.lock_on_argument(0.5, name=name, min_hold=2)
    def withdraw() -> None:
        raise LookupError

    async def main() -> float:
        asked = time.monotonic()
        with pytest.raises(LookupError):
            await asyncio.to_thread(withdraw)
        async with locker.lock_on(name):
            return time.monotonic() - asked

    assert run(main()) >= 2
