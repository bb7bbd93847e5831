"""Lockers for tests of an application: time moves on, holds are lost and the store fails on command.

With pytest, the fixture ``locker_testing`` is what `memory` returns, anew for each test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack, final

from . import _native
from ._locker import Locker
from ._options import Seconds, Settings
from ._primitives import HasKey

__all__ = ["Control", "memory"]


def memory(**settings: Unpack[Settings]) -> tuple[Locker, Control]:
    """Returns a locker on a store of its own in this process, and what controls the store.

    Args:
        **settings: The defaults of all calls, as those of a ``Locker``.

    Raises:
        Misused: A setting is wrong.

    Example:
        >>> locker, control = memory()
        >>> guard = locker.lock("report", lease=30, renew=False).acquire()
        >>> control.advance(31)
        >>> guard.is_held
        False
    """
    native, control = _native.controlled(**settings)
    locker = Locker._of(native, "memory://", settings)
    return locker, Control(locker, control)


@final
class Control:
    """Controls the store of one locker under test. Get one from `memory`."""

    __slots__ = ("_locker", "_native")

    def __init__(self, locker: Locker, native: _native.Control) -> None:
        self._locker = locker
        self._native = native

    def advance(self, by: Seconds) -> None:
        """Moves time on for the store and its holds.

        Holds that are renewed survive, also if ``by`` is longer than their lease. Others end with their lease: their
        guards are lost, and waiters are served. ``max_hold`` ends holds, and so does the
        end of ``min_hold``. Limits refill and admit calls that wait,
        watchdogs expire, events are forgotten. The timeouts of calls and other clocks do not move. A hold that another
        thread acquires meanwhile may be lost, also one that is renewed.

        Args:
            by: How far: seconds, a text such as ``"1m 30s"``, or a ``timedelta``.

        Raises:
            Misused: It is no time.
        """
        self._native.advance(by)

    def lose(self, of: str | HasKey) -> bool:
        """Ends holds by force, as an operator does. Their guards are lost when this returns.

        Args:
            of: What has their key, as with ``Locker.inspect``: a request such as ``locker.lock("invoice 7")``, or
                ``locker.lock_on("order.ship", 7)`` for the lock of a decorated function; a guard; or a whole key.

        Returns:
            Whether any caller held it.

        Raises:
            Misused: It is no key, but a name.
            Unavailable: There is an outage.
        """
        return self._native.lose(self._locker._key_of(of, "lose"))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Makes all calls to the store raise ``Unavailable`` inside the ``with`` block.

        Calls that wait go on waiting, up to their timeouts. Holds are lost if their lease ends before the block does.
        """
        outage = self._native.outage()
        try:
            yield
        finally:
            outage.end()
