"""Records: of several callers one runs, and its success or its result counts for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, Self, TypeVar, Unpack

from . import _native
from ._binding import describe, is_async
from ._bodies import holds_around
from ._errors import Misused
from ._guards import Ended, Guard
from ._options import IdempotentOptions, OnceOptions, OnLost, Seconds, idempotent_options, once_options
from ._primitives import Primitive
from ._results import read, write
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

    def keep(
        self, keep: Seconds, *, same: Sequence[object] = (), **options: Unpack[IdempotentOptions]
    ) -> OnceKeep:
        """Keeps the result of a success for so long: until then all callers get it, and nothing runs again.

        Args:
            keep: How long, up to 10 years. With 0 only callers get it that waited while it was made.
            same: The values that calls must have in common, in this order, or they get ``Conflict``. They are written
                as parts of keys are.
            **options: See `IdempotentOptions`.

        Raises:
            Misused: An option or a value is wrong, or no run has such an option.
        """
        if isinstance(same, (str, bytes)) or not isinstance(same, Sequence):
            raise Misused("same= takes several values: give a tuple, as in same=(card, amount)")
        return OnceKeep(self._native.keep(keep, same=same or None, **idempotent_options(options)))


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
        result: R | None = _run(self._native, body, Run)
        return result

    async def run_async(self, body: Callable[[Guard], Awaitable[R]]) -> R | None:
        """`run` for coroutines, with an async function.

        If the run is lost, the body is cancelled, and ``Lost`` is raised. If the task is cancelled, the body ends
        first, and then the next caller runs.
        """
        result: R | None = await _run_async(self._native, body, Run)
        return result


class OnceKeep(Primitive[_native.OnceKeep]):
    """What runs once for as long as its result is kept. ``Once.keep`` returns it. It may be used as often as needed.

    Results are kept as JSON text: return what `json` can write, such as ``dict``, ``list``, ``str`` and ``int``. The
    caller that ran has what its body returned, and the others what `json` reads: tuples come back as lists. A result
    that is too large, or has no JSON text, is returned to its caller and not kept: the others get ``Conflict``, and
    nothing runs again.
    """

    __slots__ = ()

    def run(self, body: Callable[[Guard], R]) -> R:
        """Runs the body, or returns the result of another run.

        It succeeds if it returns. If it raises an error, the next caller runs, of those that wait or of later ones.

        Args:
            body: A plain function of the guard of the run.

        Raises:
            Misused: An option is wrong, it is an async function, or the call is inside of a run of this record.
            TimedOut: The run of another caller has not ended in time.
            Lost: The run was lost, and another one has begun before its end; or nobody knows whether the one before
                has succeeded (``after_crash="refuse"``).
            Conflict: A call with this key has other values in ``same``, or has run and its result was not kept; or
                another kind of primitive uses the key, or the record was deleted during the wait.
            Unavailable: The store cannot be reached.
        """
        result: R = _run(self._native, body, KeepingRun)
        return result

    async def run_async(self, body: Callable[[Guard], Awaitable[R]]) -> R:
        """`run` for coroutines, with an async function.

        If the run is lost, the body is cancelled, and ``Lost`` is raised. If the task is cancelled, the body ends
        first, and then the next caller runs.
        """
        result: R = await _run_async(self._native, body, KeepingRun)
        return result


def _run(native: _native.OncePer | _native.OnceKeep, body: Callable[[Guard], object], kind: type[Run]) -> Any:
    if is_async(body):
        raise Misused(f"{describe(body)}: `run` needs a plain function: await `run_async` instead")
    hold = wait_blocking(native.begin(inside=holds_around()))
    if not isinstance(hold, _native.Guard):
        return None if hold is None else read(hold)
    with kind(hold) as run:
        return run._kept(returned(body, (run,), {}, DEFERRED))


async def _run_async(
    native: _native.OncePer | _native.OnceKeep, body: Callable[[Guard], Awaitable[object]], kind: type[Run]
) -> Any:
    if not is_async(body):
        raise Misused(f"{describe(body)}: `run_async` needs an async function: give a plain one to `run`")
    hold = await wait(native.begin(inside=holds_around()))
    if not isinstance(hold, _native.Guard):
        return None if hold is None else read(hold)
    async with kind(hold) as run:
        return run._kept(await body(run))


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

    def _release(self, ended: Ended) -> _native.Call[None]:
        if ended == "unknown":
            return self._hold.abandon()
        return self._finish() if ended == "returned" else super()._release(ended)

    def _finish(self) -> _native.Call[None]:
        return self._hold.finish()

    @property
    def _keeps_result(self) -> bool:
        return self._is_async


class KeepingRun(Run):
    """The guard of a run whose result is kept."""

    __slots__ = ("_text",)

    def __init__(self, hold: _native.Guard, on_lost: OnLost | None = None, passing: bool = False) -> None:
        super().__init__(hold, on_lost, passing)
        self._text: bytes | None = None

    def _kept(self, result: R) -> R:
        self._text = write(result, self.key)
        return result

    def _finish(self) -> _native.Call[None]:
        return self._hold.finish_with(self._text)
