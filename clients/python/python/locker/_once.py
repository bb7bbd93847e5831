"""Records: of several callers one runs, and its success counts for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn, Self, TypeVar, Unpack

from . import _native
from ._binding import describe, is_async
from ._bodies import holds_around
from ._errors import Misused
from ._guards import Guard
from ._options import OnceOptions, OnLost, Seconds, once_options
from ._primitives import Primitive
from ._waiting import wait, wait_blocking
from ._wrapping import DEFERRED, returned

R = TypeVar("R")


class Once(Primitive[_native.Once]):
    """A record of what has run. See ``Locker.once``."""

    __slots__ = ()

    def per(self, every: Seconds, **options: Unpack[OnceOptions]) -> OncePer:
        """Makes one success count for a slot of time: of all callers in a slot, on all hosts, one runs.

        Args:
            every: How long a slot is, from 1 s to 366 d.
            **options: See `OnceOptions`.

        Raises:
            Misused: An option has no such value, or no run has such an option.
        """
        return OncePer(self._native.per(every, **once_options(options)))


class OncePer(Primitive[_native.OncePer]):
    """What runs once in each slot of time. ``Once.per`` returns it. It may be used as often as needed."""

    __slots__ = ()

    def run(self, body: Callable[[Guard], R]) -> R | None:
        """Runs the body, unless it has succeeded in this slot.

        It succeeds if it returns. If it raises an error, the next caller runs, of those that wait or of later ones.

        Args:
            body: A plain function of the guard of the run.

        Returns:
            What the body returns; ``None`` if the call was skipped.

        Raises:
            Misused: An option is wrong, it is an async function, or the call is inside of a run of this record.
            TimedOut: The run of another caller has not ended in time.
            Lost: The run was lost, and another one has begun before its end; or nobody knows whether the one before
                has succeeded (``after_crash="refuse"``).
            Conflict: Another kind of primitive uses the key, or the record was deleted during the wait.
            Unavailable: The store cannot be reached.
        """
        if is_async(body):
            raise Misused(f"{describe(body)}: `run` needs a plain function: await `run_async` instead")
        hold = wait_blocking(self._native.begin(inside=holds_around()))
        if hold is None:
            return None
        with Run(hold) as run:
            result: R = returned(body, (run,), {}, DEFERRED)
            return result

    async def run_async(self, body: Callable[[Guard], Awaitable[R]]) -> R | None:
        """`run` for coroutines, with an async function.

        If the run is lost, the body is cancelled, and ``Lost`` is raised. If the task is cancelled, the body ends
        first, and then the next caller runs.
        """
        if not is_async(body):
            raise Misused(f"{describe(body)}: `run_async` needs an async function: give a plain one to `run`")
        hold = await wait(self._native.begin(inside=holds_around()))
        if hold is None:
            return None
        async with Run(hold) as run:
            return await body(run)


class Run(Guard):
    """The guard of a run, whose success is what its body returns.

    What an async body returns counts, even if only the end finds out that the run was lost.
    """

    __slots__ = ("_is_async",)

    def __init__(self, hold: _native.Guard, on_lost: OnLost | None = None, passing: bool = False) -> None:
        super().__init__(hold, on_lost, passing)
        self._is_async = False

    async def __aenter__(self) -> Self:
        self._is_async = True
        return await super().__aenter__()

    def release(self) -> NoReturn:
        """Refuses.

        Raises:
            Misused: Always.
        """
        raise Misused("a run ends with its body: return from it, or raise an error, and the next caller runs")

    async def release_async(self) -> NoReturn:
        """As `release`."""
        self.release()

    def _release(self, is_success: bool) -> _native.Call[None]:
        return self._hold.finish() if is_success else super()._release(is_success)

    @property
    def _keeps_result(self) -> bool:
        return self._is_async
