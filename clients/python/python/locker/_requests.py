"""Requests for holds, by hand."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from . import _native
from ._bodies import holds_around, runner
from ._errors import Misused
from ._guards import Guard, Guards, refuse_cancel
from ._options import OnLost
from ._waiting import wait, wait_blocking

Held = TypeVar("Held", bound=Guard | Guards)

_numbers: Final = itertools.count()


class Request(Generic[Held]):
    """A request for a hold: of ``Locker.lock`` and the methods beside it. Nothing is asked for before it is used.

    It is used in one of these ways, as often as needed and by several threads or tasks at a time::

        with request as guard: ...
        async with request as guard: ...
        guard = request.acquire()            # guard = await request.acquire_async()
        guard = request.try_acquire()        # guard = await request.try_acquire_async()

    The body of ``with`` and ``async with`` is inside the hold: a call in it that would wait for that very hold raises
    ``Misused`` at once. Each ``with`` has a guard of its own, in whatever thread it ends. Make a request for each
    ``ExitStack`` and the like, which enter and leave it in functions of their own.

    The task that enters ``async with`` is the one that a loss cancels, wherever it is then: leave the body in the same
    task, or use ``on_lost="error"``. An interrupt at the very end of a ``with`` may leave its hold with the request:
    where Ctrl-C is survived, make a request for each ``with``.
    """

    __slots__ = ("_ask", "_entered", "_guard", "_keys", "_on_lost")

    def __init__(
        self,
        ask: Callable[..., _native.Call[Any]],
        guard: Callable[[Any], Held],
        on_lost: OnLost | None = None,
        keys: Sequence[str] = (),
    ) -> None:
        self._ask = ask
        self._keys = keys
        self._guard = guard
        self._on_lost: OnLost | None = on_lost
        self._entered: dict[int, _Entry] = {}

    @property
    def key(self) -> str:
        """The key in the store.

        Raises:
            Misused: It is a request for several locks.
        """
        if len(self._keys) != 1:
            raise Misused(f"{self!r} is for several locks: each has a key of its own")
        return self._keys[0]

    def __repr__(self) -> str:
        return f"<locker.Request {' '.join(self._keys)}>"

    def acquire(self) -> Held:
        """Acquires, waiting if necessary. The guard is held until it is released or garbage-collected.

        Raises:
            TimedOut: It was not granted within ``timeout``.
            RetriesExhausted: It was not granted in ``max_retry`` attempts.
            Unavailable: The store cannot be reached. Nothing is held.
            Misused: An option is wrong, or the call would wait for a body around it.
            Conflict: The key belongs to another kind of primitive.
        """
        return self._guard(wait_blocking(self._ask(inside=holds_around())))

    async def acquire_async(self) -> Held:
        """`acquire` for coroutines. If the task is cancelled, nothing stays held and the queue is left."""
        return self._guard(await wait(self._ask(inside=holds_around())))

    def try_acquire(self) -> Held | None:
        """Tries once, and returns ``None`` if others hold it.

        Raises:
            Unavailable: The store cannot be reached.
        """
        hold = wait_blocking(self._ask(try_once=True))
        return None if hold is None else self._guard(hold)

    async def try_acquire_async(self) -> Held | None:
        """`try_acquire` for coroutines."""
        hold = await wait(self._ask(try_once=True))
        return None if hold is None else self._guard(hold)

    def __enter__(self) -> Held:
        refuse_cancel(self._on_lost)
        frame, number = sys._getframe(1), next(_numbers)
        guard = self.acquire()
        guard.__enter__()
        entry = _Entry(frame, runner(), guard)
        # The last step: an interrupt before it drops the guard.
        self._entered[number] = entry
        return guard

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(sys._getframe(1)).__exit__(kind, error, trace)

    def __aenter__(self) -> Coroutine[Any, Any, Held]:
        return self._enter_async(sys._getframe(1))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        return self._leave_async(sys._getframe(1), kind, error, trace)

    async def _enter_async(self, frame: FrameType) -> Held:
        number = next(_numbers)
        guard = await self.acquire_async()
        await guard.__aenter__()
        entry = _Entry(frame, runner(), guard)
        self._entered[number] = entry
        return guard

    async def _leave_async(
        self,
        frame: FrameType,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(frame).__aexit__(kind, error, trace)

    def _leave(self, frame: FrameType) -> Held:
        """Finds the guard of this body: that of the frame, which is the same at both ends of a ``with``."""
        # Other threads do the same.
        while entered := tuple(self._entered.items()):
            number, entry = entered[0] if len(entered) == 1 else _most_like(entered, frame)
            if self._entered.pop(number, None) is None:
                continue
            if len(entered) > 1 and entry.frame is not frame and entry.runner != runner():
                entry.guard.abandon()
                raise Misused("several bodies were entered in other functions and tasks: make a request for each")
            guard: Held = entry.guard
            return guard
        raise Misused("this request is not in a body")


class _Entry(NamedTuple):
    """A body that is entered, by the frame of its ``with``, and by its task or thread."""

    frame: FrameType
    runner: object
    guard: Any


def _most_like(entered: Sequence[tuple[int, _Entry]], frame: FrameType) -> tuple[int, _Entry]:
    """Returns the last body of this frame, or else of this task or thread, or else of all."""
    here = runner()
    return max(entered, key=lambda one: (one[1].frame is frame, one[1].runner == here, one[0]))
