"""A body that is cancelled when its hold is lost, as ``asyncio.timeout`` cancels one when time is up."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from . import _native
from ._waiting import is_trio, watch


class CancelOnLoss(Protocol):
    """Cancels the body that begins now, once its hold is lost."""

    @property
    def has_cancelled(self) -> bool:
        """Whether it has."""
        ...

    def leave(self, error: BaseException | None) -> bool:
        """Ends the body, and tells whether ``Lost`` takes the place of what it has raised or returned."""
        ...


def cancel_on_loss(hold: _native.Guard | _native.Guards) -> CancelOnLoss:
    """Begins a body of the running task."""
    if is_trio():
        return _OfTrio(hold)
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("there is no task that could be cancelled")
    return _OfAsyncio(hold, task)


class _OfAsyncio:
    __slots__ = ("_cancelling", "_is_lost", "_soon", "_task", "_watch")

    def __init__(self, hold: _native.Guard | _native.Guards, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self._is_lost = False
        self._soon: asyncio.Handle | None = None
        self._watch = watch(hold.lost(), self._lost)

    def _lost(self) -> None:
        # The task runs now if the hold is lost already. A task that cancels itself is cancelled wherever it waits next.
        self._soon = self._task.get_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        self._is_lost = True
        self._task.cancel()

    @property
    def has_cancelled(self) -> bool:
        return self._is_lost

    def leave(self, error: BaseException | None) -> bool:
        self._watch.close()
        if self._soon is not None:
            self._soon.cancel()
        if not self._is_lost:
            return False
        if asyncio.current_task() is not self._task:
            # The cancellation was for the task that has begun the body.
            return error is None
        nobody_else_cancels = self._task.uncancel() <= self._cancelling
        # A body that returns although it was cancelled has done so after the loss. One in a generator is not cancelled
        # itself, but closed by who was.
        ends = (asyncio.CancelledError, GeneratorExit)
        return error is None or (nobody_else_cancels and isinstance(error, ends))


class _OfTrio:
    __slots__ = ("_scope", "_watch")

    def __init__(self, hold: _native.Guard | _native.Guards) -> None:
        import trio

        self._scope = trio.CancelScope()
        self._watch = watch(hold.lost(), self._scope.cancel)
        self._scope.__enter__()

    @property
    def has_cancelled(self) -> bool:
        return bool(self._scope.cancel_called)

    def leave(self, error: BaseException | None) -> bool:
        self._watch.close()
        self._scope.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        return self._scope.cancelled_caught or (error is None and self._scope.cancel_called)
