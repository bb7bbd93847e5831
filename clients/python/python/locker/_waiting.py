"""How Python waits for a call of the runtime: a thread, asyncio, trio or gevent.

A loop polls its calls on its own thread. Whoever wakes a call notes a token at the bridge of the loop, whose descriptor
the loop watches. So no thread of the runtime needs the GIL, and what is answered at once costs no switch.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from ._native import Bridge, Call, Pending

_T = TypeVar("_T")

_GEVENT: Final = "gevent._hub_local"
_tokens: Final = itertools.count(1)


def wait_blocking(call: Call[_T]) -> _T:
    """Waits for a call, and blocks this thread; under gevent only this greenlet.

    Raises:
        LockerError: The call has failed.
        BaseException: A signal handler, ``gevent.Timeout`` or the like has ended the wait. The call is given up.
    """
    if _GEVENT in sys.modules:
        hub = _hub()
        if hub is not None:
            return _wait_in_greenlet(call, hub)
    return call.wait()


async def wait(call: Call[_T]) -> _T:
    """Waits for a call, under asyncio or trio. A cancellation gives the call up.

    Raises:
        LockerError: The call has failed.
    """
    if is_trio():
        return await _wait_in_trio(call)
    loop = asyncio.get_running_loop()
    port = _port_of(loop)
    token = next(_tokens)
    result = call.poll(port.bridge, token)
    if not isinstance(result, Pending):
        return result
    try:
        while True:
            woken = loop.create_future()
            port.wakes[token] = partial(_resolve, woken)
            await woken
            result = call.poll(port.bridge, token)
            if not isinstance(result, Pending):
                return result
    except BaseException:
        # Also the end of a coroutine that is never resumed.
        call.close()
        raise
    finally:
        port.wakes.pop(token, None)


def _resolve(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class Watch:
    """Waits for a call without a task."""

    __slots__ = ("_call", "_done", "_port", "_token")

    def __init__(self, call: Call[Any], done: Callable[[], object], port: _Port) -> None:
        self._call, self._done, self._port = call, done, port
        self._token = next(_tokens)
        self._look()

    def _look(self) -> None:
        try:
            if isinstance(self._call.poll(self._port.bridge, self._token), Pending):
                self._port.wakes[self._token] = self._look
                return
        except Exception:
            # Over as well: in a forked child, for example.
            pass
        self._port.wakes.pop(self._token, None)
        self._done()

    def close(self) -> None:
        """Ends the wait. ``done`` is not called any more."""
        self._call.close()
        self._port.wakes.pop(self._token, None)


def watch(call: Call[Any], done: Callable[[], object]) -> Watch:
    """Calls ``done`` on the thread of the running loop once the call is over, which may be at once."""
    port = _port_of_trio() if is_trio() else _port_of(asyncio.get_running_loop())
    return Watch(call, done, port)


class _Port:
    """The bridge of one loop, and what to do for each token that is noted there.

    Only its loop keeps it, so that the tasks of a loop that is closed or dropped go with the loop. A wake-up too many
    does no harm: who is woken looks again.
    """

    __slots__ = ("__weakref__", "bridge", "wakes")

    def __init__(self) -> None:
        self.bridge = Bridge()
        self.wakes: dict[int, Callable[[], object]] = {}

    def drain(self) -> None:
        self.wake(self.bridge.drain)

    def wake(self, noted: Callable[[], list[int]]) -> None:
        try:
            for token in noted():
                self._wake(token)
        except BaseException:
            # A signal handler has raised, and nobody knows any more which tokens are left.
            for token in tuple(self.wakes):
                self._wake(token)
            raise

    def _wake(self, token: int) -> None:
        wake = self.wakes.get(token)
        if wake is not None:
            wake()

    def close(self) -> None:
        self.bridge.close()
        self.wakes.clear()


# asyncio

_ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Port]] = weakref.WeakKeyDictionary()
_opening = threading.Lock()


def _port_of(loop: asyncio.AbstractEventLoop) -> _Port:
    port = _ports.get(loop)
    return (port and port()) or _open_port(loop)


def _open_port(loop: asyncio.AbstractEventLoop) -> _Port:
    port = _Port()
    if not _is_watched(loop, port):
        loop._locker_port = port  # type: ignore[attr-defined]
        weakref.finalize(loop, port.bridge.close).atexit = False
        parts = (port.bridge, weakref.ref(port), weakref.ref(loop))
        threading.Thread(target=_pump, args=parts, name="locker-pump", daemon=True).start()
    with _opening:
        # A loop does not say when it is closed.
        for other in [other for other in _ports if other.is_closed()]:
            closed = _ports.pop(other)()
            if closed is not None:
                closed.close()
        _ports[loop] = weakref.ref(port)
    return port


def _is_watched(loop: asyncio.AbstractEventLoop, port: _Port) -> bool:
    descriptor = port.bridge.fileno()
    # Windows has none.
    if descriptor < 0:
        return False
    try:
        loop.add_reader(descriptor, port.drain)
    except NotImplementedError:
        return False
    return True


def _pump(bridge: Bridge, port: weakref.ref[_Port], loop: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """Wakes a loop that watches no descriptors, such as the default one on Windows."""
    while tokens := bridge.wait():
        running, woken = loop(), port()
        if running is None or woken is None:
            return
        try:
            running.call_soon_threadsafe(woken.wake, tokens.copy)
        except RuntimeError:
            # It is closed.
            woken.close()
            return
        del running, woken


# trio


def is_trio() -> bool:
    """Tells whether a task of trio runs this code, which may itself be a guest of asyncio's loop."""
    trio: Any = sys.modules.get("trio.lowlevel")
    return trio is not None and bool(trio.in_trio_task())


_port_of_run: Any = None


def _port_of_trio() -> _Port:
    global _port_of_run
    trio: Any = sys.modules["trio"]
    if _port_of_run is None:
        _port_of_run = trio.lowlevel.RunVar("locker_port", None)
    port: _Port | None = _port_of_run.get()
    if port is None:
        port = _Port()
        _port_of_run.set(port)
        trio.lowlevel.spawn_system_task(_pump_of_trio, port)
    return port


async def _pump_of_trio(port: _Port) -> None:
    trio: Any = sys.modules["trio"]
    alone = trio.CapacityLimiter(1)
    try:
        descriptor = port.bridge.fileno()
        # Windows has none.
        while descriptor < 0:
            tokens = await trio.to_thread.run_sync(port.bridge.wait, abandon_on_cancel=True, limiter=alone)
            port.wake(tokens.copy)
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            port.drain()
    finally:
        port.close()


async def _wait_in_trio(call: Call[_T]) -> _T:
    trio: Any = sys.modules["trio"]
    port = _port_of_trio()
    token = next(_tokens)

    def wake(task: Any) -> None:
        if port.wakes.pop(token, None) is not None:
            trio.lowlevel.reschedule(task)

    def leave(_: object) -> Any:
        # Trio resumes the task later, and nobody else may until then.
        port.wakes.pop(token, None)
        return trio.lowlevel.Abort.SUCCEEDED

    try:
        await trio.lowlevel.checkpoint_if_cancelled()
        result = call.poll(port.bridge, token)
        if not isinstance(result, Pending):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return result
        while True:
            port.wakes[token] = partial(wake, trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(leave)
            result = call.poll(port.bridge, token)
            if not isinstance(result, Pending):
                return result
    except BaseException:
        call.close()
        raise
    finally:
        port.wakes.pop(token, None)


# gevent


def _hub() -> Any:
    """Returns the hub of this thread, if there is one and this is not its own greenlet."""
    hub: Any = sys.modules[_GEVENT].get_hub_if_exists()
    return None if hub is None or sys.modules["greenlet"].getcurrent() is hub else hub


class _HubPort(_Port):
    """Is there only while somebody waits: a hub does not say when it ends, and ends if nothing is watched."""

    __slots__ = ("_waiting", "_watcher")

    def __init__(self) -> None:
        super().__init__()
        self._watcher: Any = None
        self._waiting = 0

    @contextmanager
    def used(self, hub: Any) -> Iterator[None]:
        """Ends with its last user."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                if hub.__dict__.get("_locker_port") is self:
                    del hub._locker_port
                if self._watcher is not None:
                    self._watcher.stop()
                    self._watcher.close()
                self.close()

    def watch(self, hub: Any) -> None:
        if self._watcher is None:
            self._watcher = hub.loop.io(self.bridge.fileno(), 1)
            self._watcher.start(self.drain)


def _port_of_hub(hub: Any) -> _HubPort:
    port: _HubPort | None = hub.__dict__.get("_locker_port")
    if port is None or port.bridge.fileno() < 0:
        # There is none yet, or that of the parent.
        port = hub._locker_port = _HubPort()
    return port


def _wait_in_greenlet(call: Call[_T], hub: Any) -> _T:
    port = _port_of_hub(hub)
    token = next(_tokens)
    try:
        with port.used(hub):
            while True:
                result = call.poll(port.bridge, token)
                if not isinstance(result, Pending):
                    return result
                port.watch(hub)
                waiter: Any = sys.modules["gevent.hub"].Waiter(hub)
                port.wakes[token] = partial(hub.loop.run_callback, waiter.switch, None)
                waiter.get()
    except BaseException:
        # `gevent.Timeout`, or the greenlet is killed.
        call.close()
        raise
    finally:
        port.wakes.pop(token, None)


def _forget() -> None:
    """Forgets the ports in a forked child: they wake the loops of its parent."""
    global _opening, _ports, _port_of_run
    _opening = threading.Lock()
    _ports = weakref.WeakKeyDictionary()
    _port_of_run = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
