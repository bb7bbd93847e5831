"""Guards: what is held, and the bodies of ``with`` and ``async with`` under it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Generic, Literal, NoReturn, Self, TypeAlias, TypeVar

from . import _native
from ._bodies import Body
from ._errors import LockerError, Lost, Misused
from ._loss import CancelOnLoss, cancel_on_loss
from ._options import OnLost
from ._waiting import wait, wait_blocking

_LOGGER: Final = logging.getLogger("locker")

Hold = TypeVar("Hold", bound=_native.Guard | _native.Guards)
R = TypeVar("R")


def refuse_cancel(on_lost: OnLost | None) -> None:
    """Refuses a body that cannot be cancelled.

    Raises:
        Misused: It should be.
    """
    if on_lost == "cancel":
        raise Misused("on_lost='cancel' cancels a task: it works in coroutines only, with `async with`")


Ended: TypeAlias = Literal["returned", "raised", "unknown"]
"""How a body has ended. Nobody knows how far one has come that was cancelled or interrupted."""


def _ended(error: BaseException | None) -> Ended:
    if error is None:
        return "returned"
    return "raised" if isinstance(error, Exception) else "unknown"


class _Held(Generic[Hold]):
    """What guards of one and of several holds have in common.

    `raised` is the `Lost` that has left the body of this guard.
    """

    __slots__ = ("__weakref__", "_body", "_hold", "_on_lost", "_passing", "_watch", "raised")

    def __init__(self, hold: Hold, on_lost: OnLost | None = None, passing: bool = False) -> None:
        self._hold = hold
        self._on_lost: OnLost | None = on_lost
        self._passing = passing
        self._body: Body | None = None
        self._watch: CancelOnLoss | None = None
        self.raised: Exception | None = None
        if not passing:
            hold.warn_if_dropped()

    @property
    def remaining(self) -> float:
        """How many seconds of the lease are left by the local clock; 0.0 if it may be over."""
        return self._hold.remaining

    @property
    def is_held(self) -> bool:
        """Whether some of the lease is left by the local clock, and ``release`` was not called."""
        return self._hold.is_held

    def check(self) -> None:
        """Raises an error unless this is held. Call it right before a step that must not run after a loss.

        Raises:
            Lost: The lease may be over.
            NotHeld: The guard was released.
            Misused: This is a forked child of the holder.
        """
        self._hold.check()

    def release(self) -> None:
        """Ends the hold.

        Raises:
            Lost: It was over before.
            NotHeld: The guard was released before.
            Unavailable: The store cannot be reached. The release goes on in the background.
        """
        wait_blocking(self._hold.release())

    async def release_async(self) -> None:
        """`release` for coroutines. If the task is cancelled, the release goes on in the background."""
        await wait(self._hold.release())

    async def lost_async(self) -> None:
        """Waits until the hold is lost. Does not return while it lasts, nor after ``release``."""
        await wait(self._hold.lost())

    def __enter__(self) -> Self:
        refuse_cancel(self._on_lost)
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            release = self._end(_ended(error))
            if release is not None:
                wait_blocking(release)
        except LockerError as failure:
            self._settle(failure, error)

    async def __aenter__(self) -> Self:
        self._begin()
        if self._on_lost in (None, "cancel"):
            self._watch = cancel_on_loss(self._hold)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch, self._watch = self._watch, None
        # The release below ends the other holds, too.
        is_lost, loss = False, self._loss()
        try:
            # Dropped, it goes on in the background: `leave` may raise what is left of a group of errors.
            has_cancelled = watch is not None and watch.has_cancelled
            release = self._end("unknown" if has_cancelled else _ended(error))
            is_lost = watch is not None and watch.leave(error)
            if release is None:
                pass
            elif is_lost or not (error is None or isinstance(error, Exception)):
                # Nobody waits for the store after a loss, nor who is cancelled: it goes on in the background.
                release.close()
            else:
                await wait(release)
        except LockerError as failure:
            self._settle(failure, error)
        if is_lost:
            self._raise(loss or self._hold.loss(), error)

    def abandon(self) -> None:
        """Ends the body, and the hold in the background."""
        watch, self._watch = self._watch, None
        release = self._end("unknown")
        if release is not None:
            release.close()
        if watch is not None:
            watch.leave(None)

    def _begin(self) -> None:
        if self._body is not None:
            raise Misused("this guard is in a body already")
        if not self._hold.is_held:
            self._refuse_released()
        if not self._passing:
            self._body = Body(self)

    def _refuse_released(self) -> None:
        for hold in self._holds:
            # A loss is told when the body ends.
            with contextlib.suppress(Lost):
                hold.check()

    def _end(self, ended: Ended) -> _native.Call[None] | None:
        body, self._body = self._body, None
        if body is not None:
            body.end()
        return None if self._hold.is_released else self._release(ended)

    def _kept(self, result: R) -> R:
        """Takes what the body returns, and returns it."""
        return result

    def _release(self, ended: Ended) -> _native.Call[None]:
        """Ends the hold after its body, which has ended in this way."""
        return self._hold.release(bounded=True)

    def _loss(self) -> Exception | None:
        """Returns the error of the hold that is over, although nobody has released it."""
        if self._hold.is_held:
            return None
        lost = (hold for hold in self._holds if not (hold.is_held or hold.is_released))
        return next((hold.loss() for hold in lost), None)

    def _settle(self, failure: LockerError, error: BaseException | None) -> None:
        """Decides about an error of the release. It never hides what the body has raised, but is noted there."""
        if not isinstance(failure, Lost):
            _LOGGER.warning("the release failed: %s", failure)
            return
        if error is None and not self._keeps_result:
            self._raise(failure, None)
        if error is not None:
            # An error may refuse notes, as those of frozen classes do.
            with contextlib.suppress(Exception):
                error.add_note(str(failure))
        _LOGGER.warning("the hold was lost: %s", failure)

    @property
    def _keeps_result(self) -> bool:
        """Whether what the body has returned counts, although only the release has found the loss."""
        return self._on_lost == "continue"

    @property
    def _holds(self) -> Sequence[_native.Guard]:
        raise NotImplementedError

    def _raise(self, loss: Exception, cause: BaseException | None) -> NoReturn:
        self.raised = loss
        raise loss from cause

    def __reduce__(self) -> NoReturn:
        raise TypeError("a guard cannot be pickled: it is held by this process")


class Guard(_Held[_native.Guard]):
    """A hold: a lock, permits of a semaphore, or a side of a read/write lock.

    The lease is renewed in the background, by a thread that needs no GIL, until the guard is released or
    garbage-collected: the latter emits a ``ResourceWarning``. In a forked child nothing of it is held.

    A guard has one hold: ``with`` and ``async with`` raise ``NotHeld`` after its release. Use the
    request again instead.
    """

    __slots__ = ()

    @property
    def _holds(self) -> Sequence[_native.Guard]:
        return (self._hold,)

    @property
    def key(self) -> str:
        """The key in the store."""
        return self._hold.key

    @property
    def fence(self) -> int:
        """A number that rises with every grant of this key. Resources that reject lower ones are safe from a holder
        whose lease is over."""
        return self._hold.fence

    @property
    def id(self) -> str:
        """32 hexadecimal digits that no other hold of the store has."""
        return self._hold.id

    @property
    def slot(self) -> datetime | None:
        """When the slot begins, with a time zone, in which a run of ``once_per`` counts; ``None`` for other holds."""
        return self._hold.slot

    @property
    def missed(self) -> int:
        """How many slots had no success, from the last one that had until that of this run.

        0 if no run is remembered, which is for three slots after a success; and unless it is a run of ``once_per``.
        """
        return self._hold.missed

    def __repr__(self) -> str:
        return f"<locker.Guard {self.key} fence={self.fence} {'held' if self.is_held else 'not held'}>"


class Guards(_Held[_native.Guards]):
    """Several locks, all held or none. ``with`` and ``async with`` raise ``NotHeld`` once one of them was released."""

    __slots__ = ()

    @property
    def _holds(self) -> Sequence[_native.Guard]:
        return self._hold.each

    @property
    def each(self) -> list[Guard]:
        """The guards in the order of their keys. Releasing one of them releases it here, too."""
        return [Guard(hold) for hold in self._hold.each]

    def __repr__(self) -> str:
        return f"<locker.Guards {[guard.key for guard in self.each]} {'held' if self.is_held else 'not held'}>"
