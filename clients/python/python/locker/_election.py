"""Elections: one leader at a time, and those that follow it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from . import _native
from ._binding import describe, is_async
from ._bodies import holds_around
from ._errors import LockerError, Lost, Misused
from ._guards import Guard
from ._native import Leader
from ._options import Seconds
from ._primitives import Primitive
from ._waiting import wait, wait_blocking

R = TypeVar("R")


class Election(Primitive[_native.Election]):
    """Candidates that ask for one name, of which one is the leader at a time. See ``Locker.elect``.

    The leader holds the lock with the key ``leader:NAME``: candidates of other languages and of ``locker lead`` take
    part in the same election.
    """

    __slots__ = ()

    async def run(self, body: Callable[[Guard], Awaitable[R]]) -> R:
        """Waits until this candidate is elected, runs the body, and ends the term with it.

        If the term is lost, the body is cancelled. Once it has ended, the candidate waits behind the others to be
        elected again, and the body is called again. To step down, return. If the task is cancelled, the body ends
        first, and then the term, in the background. While the store cannot be reached, it is asked again after 0.1 to
        10 s.

        A process that is stopped, or a body that blocks its thread, notices the end of its term late: send
        ``term.fence`` with what must not be carried out twice.

        Args:
            body: An async function of the guard of the term.

        Returns:
            What the body returns. Its errors are passed on.

        Raises:
            Misused: An option is wrong, it is no async function, or the call would wait for a body around it.
            Conflict: Another kind of primitive uses the key, or the name was deleted during the wait.
            Deadlock: The leader waits for what the caller holds.
        """
        check_leader(body)
        result: R = await lead(self._native, body)
        return result

    def observe(self) -> Observer:
        """Looks at the election, without taking part in it.

        Raises:
            Unavailable: The store cannot be reached. Later looks that fail change nothing.
        """
        return Observer(self.key, wait_blocking(self._native.observe()))

    async def observe_async(self) -> Observer:
        """`observe` for coroutines."""
        return Observer(self.key, await wait(self._native.observe()))


class Observer:
    """A view of an election from outside. ``Election.observe`` returns it.

    It looks every third of the lease, from 1 to 10 s, in the background, until it is garbage-collected. What it shows
    may be old: send the fence with what must not be carried out for a former leader. In a forked child it sees nobody.
    """

    __slots__ = ("_key", "_native")

    def __init__(self, key: str, native: _native.Observer) -> None:
        self._key = key
        self._native = native

    @property
    def key(self) -> str:
        """The key in the store."""
        return self._key

    @property
    def leader(self) -> Leader | None:
        """The leader at the latest look, or ``None`` if there was none. Never one with a lower fence than before."""
        return self._native.leader

    def changed(self, timeout: Seconds | None = None) -> None:
        """Waits until the leader, or what is known of it, is not what `leader` has shown last.

        Several changes at once count as one.

        Args:
            timeout: The longest wait. Default: without a limit.

        Raises:
            TimedOut: It has not changed.
        """
        wait_blocking(self._native.changed(timeout))

    async def changed_async(self, timeout: Seconds | None = None) -> None:
        """`changed` for coroutines."""
        await wait(self._native.changed(timeout))

    def __repr__(self) -> str:
        return f"<locker.Observer {self.key}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an observer cannot be pickled: it looks from this process")


class _Term(Guard):
    """The guard of a leader. What its body returns counts, even if only the release finds out that it was lost."""

    __slots__ = ()

    @property
    def _keeps_result(self) -> bool:
        return True


def check_leader(body: Callable[..., object]) -> None:
    """Refuses what cannot be stopped.

    Raises:
        Misused: It is no async function.
    """
    if not is_async(body):
        why = "`leader` needs an async function: a plain one cannot be stopped when the lease is lost"
        raise Misused(f"{describe(body)}: {why}")


async def _raise(error: LockerError) -> NoReturn:
    raise error


async def lead(
    election: _native.Election,
    body: Callable[[Guard], Awaitable[Any]],
    refuse: Callable[[LockerError], Awaitable[Any]] = _raise,
    function: _native.Function | None = None,
) -> Any:
    """Runs the body in one term after the other, until it ends by itself.

    Args:
        election: The election.
        body: An async function of the guard.
        refuse: Makes the result of a call that is not elected.
        function: The function that errors name.
    """
    while True:
        try:
            term = _Term(await wait(election.term(function=function, inside=holds_around())), "cancel")
        except LockerError as error:
            return await refuse(error)
        try:
            async with term:
                return await body(term)
        except Lost as loss:
            if loss is not term.raised:
                raise
