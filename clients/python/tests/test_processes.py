"""Processes: forked, spawned, interrupted, and at their end."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import workers
from scripts import Script
from servers import GENEROUS, Redis, eventually

from locker import Locker, Misused, RedisLocker

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def is_free(url: str, name: str) -> bool:
    guard = Locker(url).lock(name).try_acquire()
    if guard is None:
        return False
    guard.release()
    return True


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_workers_of_a_pool_take_turns(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, used: bool
) -> None:
    monkeypatch.setenv("LOCKER_TEST_URL", redis.url)
    monkeypatch.setattr(workers, "LOCKER", Locker(redis.url))
    locked = workers.LOCKER.lock_on_argument(5, "path", name="workers.add", timeout=GENEROUS)
    monkeypatch.setattr(workers, "add", locked(workers.add.__wrapped__))  # type: ignore[attr-defined]
    number = tmp_path / "number"
    number.write_text("0")
    if used:
        workers.add(str(number))
    turns = 20 if method == "spawn" else 50
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context(method)) as pool:
        processes = set(pool.map(workers.add_often, [str(number)] * 8, [turns] * 8))
    assert os.getpid() not in processes
    assert number.read_text() == str(8 * turns + used)


def test_child_of_a_fork_holds_nothing_of_its_parent(url: str, name: str) -> None:
    locker = Locker(url)
    with locker.lock(name) as guard:
        process = os.fork()
        if process == 0:
            try:
                status = 0 if not guard.is_held else 1
                try:
                    guard.check()
                    status = 2
                except Misused:
                    pass
                # In memory the child has a store of its own.
                mine = locker.lock(name).try_acquire()
                if (mine is None) == url.startswith("memory"):
                    status = 3
                guard.__exit__(None, None, None)
            except BaseException:
                status = 4
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
        guard.check()
        assert locker.lock(name).try_acquire() is None
    assert is_free(url, name)


def test_locker_is_pickled_by_url_and_settings(redis: Redis, name: str) -> None:
    locker = Locker(redis.url, lease=7, prefix="p:")
    copy = pickle.loads(pickle.dumps(locker))
    with copy.lock(name) as guard:
        assert guard.key == f"p:lock:{name}"
        assert 5 < guard.remaining <= 7
        assert locker.lock(name).try_acquire() is None
    article = pickle.loads(pickle.dumps(RedisLocker(redis.url, 5, 0.1, 3)))
    assert isinstance(article, RedisLocker)
    assert (article.max_retry, article.retry_delay, article.timeout) == (5, 0.1, 3)
    assert pickle.loads(pickle.dumps(workers.add)) is workers.add


def test_locker_of_this_process_cannot_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKER_URL", raising=False)
    for locker in (Locker("memory://"), Locker()):
        with pytest.raises(TypeError, match="another process does not share it"):
            pickle.dumps(locker)
    monkeypatch.setenv("LOCKER_URL", "redis://127.0.0.1:1")
    assert pickle.loads(pickle.dumps(Locker())).url is None


WAITING = {
    "sync": """
        say("waiting")
        try:
            locker.lock(name).acquire()
        except KeyboardInterrupt:
            say("interrupted")
    """,
    "decorated": """
        @locker.lock_on_argument(60, name=name)
        def body(): ...
        say("waiting")
        try:
            body()
        except KeyboardInterrupt:
            say("interrupted")
    """,
    "async": """
        async def main():
            say("waiting")
            async with locker.lock(name): ...
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            say("interrupted")
    """,
}


@pytest.mark.parametrize("form", WAITING)
def test_ctrl_c_ends_a_wait(redis: Redis, name: str, form: str) -> None:
    locker = Locker(redis.url)
    guard = (locker.lock_on(name) if form == "decorated" else locker.lock(name)).acquire()
    script = Script(redis.url, name, WAITING[form])
    assert script.line() == "waiting"

    def is_waiting() -> bool:
        found = locker.inspect(guard.key)
        return found is not None and found.waiting == 1

    eventually(is_waiting, "the waiter")
    started = time.monotonic()
    script.process.send_signal(signal.SIGINT)
    assert script.end() == "interrupted"
    assert time.monotonic() - started < 3
    guard.release()
    # It has left the queue: its place would cost a grant window.
    with (locker.lock_on(name) if form == "decorated" else locker.lock(name, timeout=0)) as again:
        assert again.is_held


def test_ctrl_c_at_the_start_is_not_lost(redis: Redis, name: str) -> None:
    """At whichever moment it comes: before the wait, while its thread is looked up, and while it has just begun."""
    guard = Locker(redis.url).lock(name).acquire()
    program = """
        locker.ping()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for delay in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, (30 + 15 * delay) / 1_000_000)
                locker.lock(name, timeout=2).acquire()
            except KeyboardInterrupt:
                continue
            except TimedOut:
                say("lost")
        say("done")
    """
    assert Script(redis.url, name, program).end() == "done"
    guard.release()


BODIES = {
    "sync": """
        with locker.lock(name):
            say("inside")
            time.sleep(60)
    """,
    "async": """
        @locker.lock_on_argument(60, name="unused")
        async def main():
            async with locker.lock(name):
                say("inside")
                await asyncio.sleep(60)
        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("form", BODIES)
def test_ctrl_c_in_a_body_releases(redis: Redis, name: str, form: str) -> None:
    script = Script(redis.url, name, BODIES[form])
    assert script.line() == "inside"
    script.process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in script.end()
    assert is_free(redis.url, name)


def test_end_of_the_process_waits_for_releases(redis: Redis, name: str) -> None:
    script = Script(
        redis.url,
        name,
        """
        def main():
            guard = Locker(sys.argv[1], lease=60).lock(name).acquire()
        main()
        kept = locker.lock(name + "-2").acquire()
        async def cancelled():
            async with locker.lock(name + "-3"):
                asyncio.current_task().cancel()
                await asyncio.sleep(60)
        try:
            asyncio.run(cancelled())
        except asyncio.CancelledError:
            pass
        del kept
        say("end")
        """,
    )
    assert script.end() == "end"
    assert is_free(redis.url, name)
    assert is_free(redis.url, f"{name}-2")
    assert is_free(redis.url, f"{name}-3")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_end_of_a_worker_waits_for_releases(redis: Redis, name: str, method: str) -> None:
    process = multiprocessing.get_context(method).Process(target=workers.hold_and_drop, args=(redis.url, name))
    process.start()
    process.join(GENEROUS)
    assert process.exitcode == 0
    assert is_free(redis.url, name)


def test_end_of_the_process_waits_no_longer_than_2_s(redis: Redis, name: str) -> None:
    script = Script(
        redis.url,
        name,
        """
        guard = locker.lock(name).acquire()
        say("held")
        sys.stdin.readline()
        del guard
        """,
    )
    assert script.line() == "held"
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        script.end()
        assert time.monotonic() - started < 10
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    assert script.process.returncode == 0


def test_held_gil_delays_no_renewal(redis: Redis, name: str) -> None:
    @Locker(redis.url).lock_on_argument(0.5, name=name)
    def stall() -> bool:
        # A call that keeps the GIL, as a big regular expression does.
        ctypes.PyDLL(None).usleep(1_100_000)
        return True

    assert stall()
    assert asyncio.run(_stall_async(redis.url, name)) is True


async def _stall_async(url: str, name: str) -> bool:
    @Locker(url).lock_on_argument(0.5, name=name)
    async def stall() -> bool:
        ctypes.PyDLL(None).usleep(900_000)
        await asyncio.sleep(0)
        return True

    return await stall()
