"""The bodies that run under a hold: which of them a call is inside of."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import Final, Protocol

from . import _native
from ._waiting import is_trio

_INSIDE: Final[ContextVar[tuple[Body, ...]]] = ContextVar("locker_inside", default=())


def _task() -> object | None:
    """Returns the running task of asyncio or trio."""
    if is_trio():
        return sys.modules["trio"].lowlevel.current_task()  # type: ignore[no-any-return]
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


def _stack() -> object:
    """Returns the thread, or the greenlet."""
    greenlet = sys.modules.get("greenlet")
    return threading.get_ident() if greenlet is None else greenlet.getcurrent()


def runner() -> object:
    """Returns what runs this code, and runs nothing else before the code waits."""
    return _task() or _stack()


def holds_around() -> list[_native.Guard | _native.Guards]:
    """Returns the holds of the bodies around this call, which must not wait for one of them.

    A plain body is around everything that runs on its stack, a whole event loop included.
    """
    bodies = _INSIDE.get()
    if not bodies:
        return []
    here = (_task(), _stack())
    holds = (body.hold for body in bodies if body.runner in here)
    return [hold for hold in holds if hold is not None and not hold.is_released]


def forget() -> None:
    """Leaves all bodies: in a forked child, which holds nothing."""
    _INSIDE.set(())


class Holder(Protocol):
    """Who has a hold: a guard. The hold ends with it at the latest."""

    @property
    def _hold(self) -> _native.Guard | _native.Guards: ...


class Body:
    """A body under a hold. It begins here and ends once.

    It keeps nothing held: a body that an interrupt has left without its end ends with its guard.
    """

    __slots__ = ("_holder", "runner")

    def __init__(self, holder: Holder) -> None:
        self._holder = weakref.ref(holder)
        self.runner = runner()
        _INSIDE.set((*(body for body in _INSIDE.get() if body.hold is not None), self))

    @property
    def hold(self) -> _native.Guard | _native.Guards | None:
        """What the body holds, unless its guard is gone."""
        holder = self._holder()
        return None if holder is None else holder._hold

    def end(self) -> None:
        """Leaves the body, in whichever task that happens."""
        _INSIDE.set(tuple(body for body in _INSIDE.get() if body is not self))
