"""The native half: how calls wait, are given up, and behave in forked processes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from locker import _errors, _native, _waiting

GENEROUS = 30.0


def eventually(what: str, look: Callable[[], object]) -> None:
    """Waits until ``look`` returns something true."""
    end = time.monotonic() + GENEROUS
    while not look():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)


def is_free(locker: _native.Locker, name: str) -> bool:
    """Whether nobody holds the lock, and nobody waits for it."""
    guard = locker.lock(name, try_once=True).wait()
    return guard is not None and guard.release().wait() is None


def waiting(locker: _native.Locker, name: str) -> int:
    """How many callers wait for the lock."""
    seen = locker.inspect(_native.Key(f"lock:{name}")).wait()
    return 0 if seen is None else seen.waiting


class Loop(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, as the default one on Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        raise NotImplementedError


def uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


@pytest.fixture(params=[asyncio.SelectorEventLoop, Loop, uvloop], ids=["asyncio", "no-reader", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on a loop of its own."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(coroutine)

    return run


def test_a_blocked_thread_does_not_hold_the_gil(url: str, name: str) -> None:
    locker = _native.Locker(url)
    held = locker.lock(name).wait()
    fences = []

    def wait() -> None:
        guard = locker.lock(name).wait()
        fences.append(guard.fence)
        guard.release().wait()

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    # This thread goes on: the others wait without the GIL.
    assert held.is_held and not fences
    eventually("all wait", lambda: waiting(locker, name) == 3)
    held.release().wait()
    for thread in threads:
        thread.join(GENEROUS)
    assert sorted(fences) == fences and len(set(fences)) == 3 and fences[0] > held.fence


def test_ctrl_c_ends_a_wait_and_leaves_the_queue(redis: Any, name: str) -> None:
    locker = _native.Locker(redis.url)
    held = locker.lock(name).wait()
    program = f"""
        from locker import _native
        locker = _native.Locker({redis.url!r})
        call = locker.lock({name!r}, timeout=60)
        try:
            call.wait()
        except KeyboardInterrupt:
            locker.settled().wait()
            print("interrupted", call.is_done, flush=True)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        eventually("the child waits", lambda: waiting(locker, name) == 1)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted True\n"
        assert child.wait(GENEROUS) == 0
    held.release().wait()
    assert is_free(locker, name)


def test_waiting_coroutines_get_the_lock_in_turn(
    url: str, name: str, run: Callable[[Coroutine[Any, Any, Any]], Any]
) -> None:
    async def main() -> None:
        locker, order = _native.Locker(url), []
        held = await _waiting.wait(locker.lock(name))

        async def turn(number: int) -> None:
            guard = await _waiting.wait(locker.lock(name))
            order.append(number)
            await _waiting.wait(guard.release())

        async with asyncio.timeout(GENEROUS), asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(turn(number))
            await asyncio.sleep(0)
            await _waiting.wait(held.release())
        assert order == list(range(50)) if url == "memory://" else sorted(order) == list(range(50))

    run(main())


def test_a_cancelled_wait_leaves_the_queue(
    url: str, name: str, run: Callable[[Coroutine[Any, Any, Any]], Any]
) -> None:
    locker = _native.Locker(url)

    async def main() -> None:
        held = await _waiting.wait(locker.lock(name))
        task = asyncio.ensure_future(_waiting.wait(locker.lock(name)))
        while waiting(locker, name) == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _waiting.wait(locker.settled())
        assert waiting(locker, name) == 0
        await _waiting.wait(held.release())
        assert is_free(locker, name)

    run(main())


def test_a_grant_that_meets_a_cancellation_is_returned(
    url: str, name: str, run: Callable[[Coroutine[Any, Any, Any]], Any]
) -> None:
    """The grant is there, and the task is cancelled before it runs again."""
    locker = _native.Locker(url)

    async def main() -> None:
        for _ in range(20):
            held = await _waiting.wait(locker.lock(name))
            task = asyncio.ensure_future(_waiting.wait(locker.lock(name)))
            while waiting(locker, name) == 0:
                await asyncio.sleep(0.001)
            # The loop does not run meanwhile, so that both meet.
            held.release().wait()
            eventually("the grant", lambda: waiting(locker, name) == 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _waiting.wait(locker.settled())
            assert is_free(locker, name)

    run(main())


def test_the_end_of_a_loop_leaves_no_waiter(name: str) -> None:
    locker = _native.Locker("memory://")
    held = locker.lock(name).wait()
    loop = asyncio.new_event_loop()
    waiting = _waiting.wait(locker.lock(name))
    # Up to its first await; the loop never resumes it.
    loop.call_soon(lambda: waiting.send(None))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    waiting.close()
    asyncio.run(asyncio.sleep(0))
    held.release().wait()
    assert is_free(locker, name)


def test_bridges_are_closed_with_their_loops() -> None:
    locker = _native.Locker("memory://")

    async def main() -> None:
        await _waiting.wait(locker.ping())

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_collected_guard_releases(url: str, name: str) -> None:
    locker = _native.Locker(url)
    guard = locker.lock(name).wait()
    del guard
    locker.settled().wait()
    assert is_free(locker, name)


def test_a_held_gil_delays_no_renewal(redis: Any, name: str) -> None:
    locker = _native.Locker(redis.url)
    guard = locker.lock(name, lease=1).wait()
    # A function of the C library that keeps the GIL.
    ctypes.PyDLL(None).usleep(3_000_000)
    assert guard.is_held
    guard.release().wait()


def test_a_loss_is_reported(redis: Any, name: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    locker = _native.Locker(redis.url)

    async def main() -> None:
        guard = await _waiting.wait(locker.lock(name, lease=0.2, renew=False))
        lost = asyncio.Event()
        watch = _waiting.watch(guard.lost(), lost.set)
        await asyncio.wait_for(lost.wait(), GENEROUS)
        watch.close()
        with pytest.raises(_errors.Lost):
            guard.check()
        assert isinstance(guard.loss(), _errors.Lost)
        with pytest.raises(_errors.Lost):
            await _waiting.wait(guard.release())

    run(main())


def in_child(child: Callable[[], object]) -> None:
    """Runs this in a forked process, which must end well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except BaseException as error:
            sys.__stderr__.write(f"{error!r}\n")  # type: ignore[union-attr]
        finally:
            os._exit(status)
    end = time.monotonic() + GENEROUS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forked_child_opens_anew_and_holds_nothing(url: str, name: str) -> None:
    locker = _native.Locker(url)
    guard = locker.lock(name).wait()
    pending = locker.lock(name)
    asyncio.run(asyncio.wait_for(_waiting.wait(locker.ping()), GENEROUS))

    def child() -> None:
        assert not guard.is_held
        with pytest.raises(_errors.Misused, match="fork"):
            guard.check()
        with pytest.raises(_errors.Misused, match="fork"):
            guard.release().wait()
        with pytest.raises(_errors.Misused, match="fork"):
            pending.wait()
        # Others wait for the parent, unless the store is in this process.
        assert (locker.lock(name, try_once=True).wait() is None) == (url != "memory://")

        async def main() -> None:
            own = await _waiting.wait(locker.lock(name + "/child"))
            await _waiting.wait(own.release())

        asyncio.run(main())

    in_child(child)
    assert guard.is_held
    assert locker.lock(name, try_once=True).wait() is None
    guard.release().wait()
    assert is_free(locker, name)


def test_a_bridge_of_the_parent_is_refused_in_a_child() -> None:
    locker, bridge = _native.Locker("memory://"), _native.Bridge()

    def child() -> None:
        assert bridge.fileno() == -1
        with pytest.raises(_errors.Misused, match="fork"):
            locker.ping().poll(bridge, 1)

    in_child(child)
    assert locker.ping().poll(bridge, 1) is None
    bridge.close()


def test_trio_waits_and_cancels(url: str, name: str) -> None:
    trio = pytest.importorskip("trio")
    locker = _native.Locker(url)

    async def main() -> None:
        held = await _waiting.wait(locker.lock(name))
        with trio.move_on_after(0.05) as scope:
            await _waiting.wait(locker.lock(name))
        assert scope.cancelled_caught
        await _waiting.wait(locker.settled())
        assert waiting(locker, name) == 0
        lost = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_waiting.wait, locker.lock(name))
            while waiting(locker, name) == 0:
                await trio.sleep(0.001)
            await _waiting.wait(held.release())
        await _waiting.wait(locker.settled())
        guard = await _waiting.wait(locker.lock(name, lease=0.1, renew=False))
        watch = _waiting.watch(guard.lost(), lost.set)
        with trio.fail_after(GENEROUS):
            await lost.wait()
        watch.close()

    trio.run(main)
    trio.run(main)


GREENLETS = """
    import gevent
    from gevent import monkey
    monkey.patch_all()
    from locker import _native, _waiting

    locker = _native.Locker({url!r})
    held = _waiting.wait_blocking(locker.lock({name!r}))
    order = []

    def turn(number):
        guard = _waiting.wait_blocking(locker.lock({name!r}))
        order.append(number)
        gevent.sleep(0.01)
        _waiting.wait_blocking(guard.release())

    greenlets = [gevent.spawn(turn, number) for number in range(5)]
    gevent.sleep(0.05)
    assert order == [], order
    try:
        with gevent.Timeout(0.05):
            _waiting.wait_blocking(locker.lock({name!r}))
        raise AssertionError("granted")
    except gevent.Timeout:
        pass
    _waiting.wait_blocking(held.release())
    gevent.joinall(greenlets, timeout=30, raise_error=True)
    assert sorted(order) == [0, 1, 2, 3, 4], order
    _waiting.wait_blocking(locker.settled())
    guard = _waiting.wait_blocking(locker.lock({name!r}, try_once=True))
    assert guard is not None
    pid = gevent.os.fork()
    if pid == 0:
        other = _waiting.wait_blocking(locker.lock({name!r} + "/child"))
        def child():
            own = _waiting.wait_blocking(locker.lock({name!r} + "/child"))
            _waiting.wait_blocking(own.release())
        waiting = gevent.spawn(child)
        gevent.sleep(0.05)
        _waiting.wait_blocking(other.release())
        waiting.join(20)
        import os
        os._exit(0 if waiting.successful() else 1)
    assert gevent.os.waitpid(pid, 0)[1] == 0
    print("done")
"""


def test_greenlets_take_turns(url: str, name: str) -> None:
    pytest.importorskip("gevent")
    program = textwrap.dedent(GREENLETS.format(url=url, name=name))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "done\n", ended.stderr


def test_many_threads_open_one_locker(redis: Any, name: str) -> None:
    locker, together = _native.Locker(redis.url), threading.Barrier(16)
    counter, sums = locker.counter(name), []

    def add() -> None:
        together.wait(GENEROUS)
        sums.append(counter.add().wait())

    threads = [threading.Thread(target=add) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GENEROUS)
    assert sorted(sums) == list(range(1, 17))


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        ("redis://h:port", {}, "port"),
        ("nope://h", {}, "nope"),
        ("memory://h", {}, "memory"),
        ("redis://h", {"prefix": "{a}"}, "braces"),
        ("memory://", {"timeout": -1}, "timeout"),
        ("memory://", {"lease": 0}, "lease"),
        ("memory://", {"retry_delay": "soon"}, "retry_delay"),
        ("memory://", {"max_retry": 0}, "max_retry"),
        ("memory://", {"strict": 60}, "strict"),
        ("memory://", {"wait_replicas": 1}, "wait_replicas"),
        ("redis://h", {"wait_replicas": 0}, "wait_replicas"),
        (None, {"wait_replicas": 0}, "wait_replicas"),
        ("redis://h", {"wait_replicas": "one"}, "wait_replicas"),
        ("redis://h", {"wait_timeout": 0.2}, "wait_timeout"),
        ("redis://h", {"wait_timeout": 0.6, "wait_replicas": 1}, "wait_timeout"),
        ("redis://h", {"strict": 60, "allow_eviction": True}, "allow_eviction"),
        ("redis://h?strict=61s", {"strict": 60}, "strict"),
        ("redis://h?allow_eviction=yes", {"allow_eviction": False}, "allow_eviction"),
        ("memory://", {"key_format": "rust"}, "key_format"),
        ("memory://", {"note": "x" * 121}, "note"),
    ],
)
def test_a_wrong_locker_is_refused_when_it_is_made(url: str | None, options: Any, named: str) -> None:
    with pytest.raises(_errors.Misused, match=named):
        _native.Locker(url, **options)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://h?strict=90s", {"strict": 90}),
        ("redis://h/1?wait_replicas=1", {"wait_replicas": 1, "wait_timeout": 0.2}),
        ("unix:///s", {"allow_eviction": True}),
        ("memory://", {"allow_eviction": True}),
    ],
)
def test_options_of_redis_may_repeat_its_url(url: str, options: Any) -> None:
    _native.Locker(url, **options)


def test_strict_mode_is_an_option(redis: Any, name: str) -> None:
    locker = _native.Locker(redis.url, prefix=name, strict=90, allow_eviction=False)
    with pytest.raises(_errors.Unavailable):
        locker.lock("a", try_once=True).wait()


def test_a_call_that_would_wait_for_its_own_body_is_refused(name: str) -> None:
    locker = _native.Locker("memory://")
    with_both = locker.lock_all([name, name + "2"]).wait()
    with pytest.raises(_errors.Misused, match="itself"):
        locker.lock(name, inside=[with_both])
    assert locker.lock(name, try_once=True, inside=[with_both]).wait() is None
    with_both.release().wait()
    assert is_free(locker, name)


def test_a_loss_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    locker = _native.Locker("memory://")
    with caplog.at_level("WARNING", "locker"):
        guard = locker.lock(name, function=_native.Function("bank.withdraw"), lease=0.05, renew=False).wait()
        guard.lost().wait()
        eventually("the warning", lambda: any(name in record.getMessage() for record in caplog.records))
    (record,) = [record for record in caplog.records if name in record.getMessage()]
    assert (record.name, record.levelname) == ("locker", "WARNING")
    assert record.getMessage().startswith("lost (") and "function=bank.withdraw" in record.getMessage()


def test_a_child_logs_for_itself(name: str, caplog: pytest.LogCaptureFixture) -> None:
    locker = _native.Locker("memory://")
    locker.ping().wait()

    def child() -> None:
        test_a_loss_is_logged(name, caplog)

    in_child(child)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda it: it.lock(5), _errors.Misused, "name=5: give a text"),
        (lambda it: it.lock("\ud800"), _errors.Misused, "surrogates"),
        (lambda it: it.lock("a", lease=True), _errors.Misused, "lease"),
        (lambda it: it.lock("a", max_retry=-1), _errors.Misused, "max_retry"),
        (lambda it: it.lock("a", release="later"), _errors.Misused, "release"),
        (lambda it: it.lock("a", nope=1), TypeError, "nope"),
        (lambda it: it.lock("a", max_hold=1), _errors.Misused, "max_hold"),
        (lambda it: it.lock_all("abc"), TypeError, "list"),
        (lambda it: it.lock_all([]), _errors.Misused, "at least one"),
        (lambda it: it.semaphore("a", -1), _errors.Misused, "-1"),
        (lambda it: it.latch("a", 2**64), _errors.Misused, "count=18446744073709551616: give a number from 0"),
        (lambda it: it.counter("a").add(2**70), _errors.Misused, "by=1180591620717411303424: give"),
        (lambda it: it.rate_limiter("a", 5, 0), _errors.Misused, "per=0 is too short"),
        (lambda it: it.rate_limiter("a", 5, 1, algorithm="leaky"), _errors.Misused, "algorithm"),
        (lambda it: it.function_key(_native.Function("f"), "ab"), TypeError, "list"),
        (lambda it: it.function_key(_native.Function("f"), [object()]), _errors.Misused, "object"),
        (lambda it: it.function_key(_native.Function("f"), [{1, 2}]), _errors.Misused, "set"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[_native.Locker], object], error: Any, named: str) -> None:
    with pytest.raises(error, match=named):
        call(_native.Locker("memory://"))


def test_no_error_and_no_text_shows_a_password() -> None:
    locker = _native.Locker("redis://user:sekret@127.0.0.1:1")
    with pytest.raises(_errors.Unavailable) as failed:
        locker.open().wait()
    assert "sekret" not in f"{failed.value!r} {locker!r} {locker.url}"
