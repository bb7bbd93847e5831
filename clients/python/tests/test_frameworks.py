"""gevent, trio, uvloop, and servers that fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest
import trio
from servers import GENEROUS, Redis, eventually, free_port

from locker import Locker, Lost, Misused, TimedOut

HERE = Path(__file__).parent


def run(program: str, *arguments: str) -> str:
    """Runs a program of a few lines in a process of its own, and returns what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_greenlets_take_turns_and_the_hub_runs_meanwhile(url: str, name: str) -> None:
    output = run(
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, sys, time
        from locker import Locker, Misused, TimedOut

        locker, name = Locker(sys.argv[1], timeout=30), sys.argv[2]
        inside, most, ticks = 0, 0, 0

        @locker.lock_on_argument(10, name=name)
        def body():
            global inside, most
            inside += 1
            most = max(most, inside)
            gevent.sleep(0.005)
            inside -= 1

        @locker.lock_on_argument(10, name=name)
        def outer():
            try:
                body()
            except Misused:
                return "refused"

        def tick():
            global ticks
            while True:
                ticks += 1
                gevent.sleep(0.001)

        ticking = gevent.spawn(tick)
        gevent.joinall([gevent.spawn(body) for _ in range(20)], raise_error=True)
        assert most == 1 and ticks > 20, (most, ticks)
        assert outer() == "refused"

        # A greenlet that is killed, or whose time is over, leaves the queue.
        with locker.lock_on(name):
            waiting = gevent.spawn(body)
            gevent.sleep(0.02)
            waiting.kill()
            late = gevent.spawn(lambda: gevent.with_timeout(0.02, body, timeout_value="late"))
            assert late.get() == "late"
            refused = gevent.spawn(locker.lock_on(name, timeout=0.02).acquire)
            refused.join()
            assert isinstance(refused.exception, TimedOut)
        locker.settled()
        with locker.lock_on(name, timeout=0):
            pass
        ticking.kill()
        print("done")
        """,
        url,
        name,
    )
    assert output == "done"


def test_trio_waits_cancels_and_loses(url: str, name: str) -> None:
    locker = Locker(url)
    steps: list[str] = []

    @locker.lock_on_argument(10, name=name, timeout=GENEROUS)
    async def body(step: str) -> None:
        steps.append(step)
        await trio.sleep(0.005)
        steps.append(step)

    @locker.lock_on_argument(0.2, name=name, max_hold=0.2)
    async def losing() -> None:
        await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(body, str(number))
        assert steps[::2] == steps[1::2]
        with pytest.raises(Lost):
            await losing()
        with trio.move_on_after(0.05) as scope:
            async with locker.lock_on(name):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        async with locker.lock_on(name):
            with trio.move_on_after(0.05) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(body, "never")
            assert scope.cancelled_caught
            with pytest.raises(Misused):
                await body("inside")
            guard = await locker.lock_on(name).try_acquire_async()
            assert guard is None
        await locker.settled_async()
        async with locker.lock_on(name, timeout=0):
            pass

    trio.run(main)
    assert "never" not in steps


APPLICATION = """
import os
from pathlib import Path
from locker import Locker

locker = Locker(os.environ["LOCKER_TEST_URL"], lease=5, timeout=30)
number = Path(os.environ["LOCKER_TEST_NUMBER"])

@locker.lock_on_argument(5, name="application.add")
def add():
    value = int(number.read_text())
    number.write_text(str(value + 1))
    return str(os.getpid())

# Used before the fork: the connection of the parent is there.
add()

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [add().encode()]
"""


@pytest.mark.parametrize("worker", ["sync", "gevent"])
def test_gunicorn_with_preload(redis: Redis, tmp_path: Path, worker: str) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "number").write_text("0")
    port = free_port()
    environment = {**os.environ, "LOCKER_TEST_URL": redis.url, "LOCKER_TEST_NUMBER": str(tmp_path / "number")}
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "3", "--worker-class", worker]
    command += ["--bind", f"127.0.0.1:{port}", "--no-control-socket", "application:application"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=GENEROUS) as client:

            def up() -> bool:
                assert server.poll() is None, (tmp_path / "log").read_text()
                try:
                    return client.get("/").status_code == 200
                except httpx.TransportError:
                    return False

            eventually(up)
        before = int((tmp_path / "number").read_text())
        # Each connection goes to any of the workers.
        processes = {httpx.get(f"http://127.0.0.1:{port}/", timeout=GENEROUS).text for _ in range(60)}
        assert str(server.pid) not in processes
        assert int((tmp_path / "number").read_text()) == before + 60
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(GENEROUS) == 0, (tmp_path / "log").read_text()


TASKS = """
import os, time
from pathlib import Path
from celery import Celery
from locker import Locker

url = os.environ["LOCKER_TEST_URL"]
app = Celery("tasks", broker=url, backend=url)
app.conf.broker_connection_retry_on_startup = True
locker = Locker(url, lease=5, timeout=30)
with locker.lock("used before the fork"):
    pass

@app.task
@locker.lock_on_argument(5, "path", name="tasks.add")
def add(path):
    number = Path(path)
    value = int(number.read_text())
    time.sleep(0.001)
    number.write_text(str(value + 1))
    return os.getpid()
"""


def test_celery_prefork(redis: Redis, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "number").write_text("0")
    environment = {**os.environ, "LOCKER_TEST_URL": redis.url, "C_FORCE_ROOT": "1"}
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "3"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    caller = """
    import sys
    from celery import group
    from tasks import add
    pids = group(add.s(sys.argv[1]) for _ in range(60))().get(timeout=60)
    print(len(set(pids)))
    """
    try:
        command = [sys.executable, "-c", textwrap.dedent(caller), str(tmp_path / "number")]
        called = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=GENEROUS
        )
        assert called.returncode == 0, called.stderr + (tmp_path / "log").read_text()
        assert int(called.stdout) > 1
        assert (tmp_path / "number").read_text() == "60"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(GENEROUS) == 0, (tmp_path / "log").read_text()


def test_wait_of_no_loop_says_what_is_missing(name: str) -> None:
    """A coroutine that something else than asyncio or trio drives."""
    coroutine = Locker("memory://").lock(name).acquire_async()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def test_thread_pool_of_a_loop_may_block(url: str, name: str) -> None:
    import asyncio

    request = Locker(url).lock(name)

    def blocking() -> float:
        with request:
            return time.monotonic()

    async def main() -> None:
        async with request:
            waiting = asyncio.create_task(asyncio.to_thread(blocking))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            left = time.monotonic()
        assert await waiting >= left
        with pytest.raises(TimedOut):
            async with request:
                await asyncio.to_thread(Locker(url).lock(name, timeout=0.02).acquire)

    asyncio.run(main())
