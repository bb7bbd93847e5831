"""What is not held: rate limiters, events, watchdogs, barriers, latches, counters.

A method without a ``timeout`` waits for no other caller. If the store does not answer, it repeats the request for up to
5 s, whatever the timeout of the locker is, and then raises ``Unavailable``.

Each method that waits has a twin for coroutines, whose name ends in ``_async``.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from . import _native
from ._native import Admission
from ._options import Seconds
from ._waiting import wait, wait_blocking


class HasKey(Protocol):
    """What has a key in the store: a request for one hold, a guard, and what is in this module."""

    @property
    def key(self) -> str:
        """The key in the store."""
        ...


Native = TypeVar("Native", bound=HasKey)


class Primitive(Generic[Native]):
    """What has a name and a key."""

    __slots__ = ("_native",)

    def __init__(self, native: Native) -> None:
        self._native = native

    @property
    def key(self) -> str:
        """The key in the store."""
        return self._native.key

    def __repr__(self) -> str:
        return f"<locker.{type(self).__name__} {self.key}>"


class RateLimiter(Primitive[_native.RateLimiter]):
    """Admits so many calls per time. See ``Locker.rate_limiter``."""

    __slots__ = ("_timeout",)

    def __init__(self, native: _native.RateLimiter, timeout: Seconds | None = None) -> None:
        super().__init__(native)
        self._timeout = timeout

    def acquire(self, tokens: int = 1, timeout: Seconds | None = None) -> Admission:
        """Takes tokens and waits for them, if they are free within the timeout.

        Args:
            tokens: How many tokens, all or nothing.
            timeout: The longest wait. Default: that of the limiter, then that of the locker.

        Raises:
            Limited: They are not free in time. Nothing is taken; ``retry_after`` says when to come back.
            Unavailable: The store cannot be reached. The tokens may be taken.
        """
        return wait_blocking(self._acquire(tokens, timeout))

    async def acquire_async(self, tokens: int = 1, timeout: Seconds | None = None) -> Admission:
        """`acquire` for coroutines. If the task is cancelled, the tokens are returned."""
        return await wait(self._acquire(tokens, timeout))

    def try_acquire(self, tokens: int = 1) -> Admission | None:
        """Takes tokens that are free now, or returns ``None``."""
        return wait_blocking(self._native.try_acquire(tokens))

    async def try_acquire_async(self, tokens: int = 1) -> Admission | None:
        """`try_acquire` for coroutines."""
        return await wait(self._native.try_acquire(tokens))

    def _acquire(self, tokens: int, timeout: Seconds | None) -> _native.Call[Admission]:
        return self._native.acquire(tokens, self._timeout if timeout is None else timeout)


class Counter(Primitive[_native.Counter]):
    """A number that all callers add to. No addition is lost or counted twice.

    It is 0 again if nobody has changed it for 24 h.
    """

    __slots__ = ()

    def add(self, by: int = 1) -> int:
        """Adds and returns the sum.

        Raises:
            Conflict: The sum would be out of ±(2**53 - 1).
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        return wait_blocking(self._native.add(by))

    async def add_async(self, by: int = 1) -> int:
        """`add` for coroutines."""
        return await wait(self._native.add(by))

    def get(self) -> int:
        """Returns the value; 0 if nobody has changed it for 24 h.

        Raises:
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        return wait_blocking(self._native.get())

    async def get_async(self) -> int:
        """`get` for coroutines."""
        return await wait(self._native.get())

    def set(self, value: int) -> None:
        """Sets the value.

        Raises:
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        wait_blocking(self._native.set(value))

    async def set_async(self, value: int) -> None:
        """`set` for coroutines."""
        await wait(self._native.set(value))


class Event(Primitive[_native.Event]):
    """A message that is sent once, and that each wait returns, whether it began before or after."""

    __slots__ = ()

    def wait(self, timeout: Seconds | None = None) -> str:
        """Waits for the message.

        Raises:
            TimedOut: Nobody has sent it. Default: the timeout of the locker.
            Conflict: The event was deleted.
        """
        return wait_blocking(self._native.wait(timeout))

    async def wait_async(self, timeout: Seconds | None = None) -> str:
        """`wait` for coroutines."""
        return await wait(self._native.wait(timeout))

    def send(self, message: str = "") -> None:
        """Sends the message.

        Raises:
            Conflict: It was sent before.
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        wait_blocking(self._native.send(message))

    async def send_async(self, message: str = "") -> None:
        """`send` for coroutines."""
        await wait(self._native.send(message))

    def reset(self) -> None:
        """Makes the event unsent.

        Raises:
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        wait_blocking(self._native.reset())

    async def reset_async(self) -> None:
        """`reset` for coroutines."""
        await wait(self._native.reset())


class Watchdog(Primitive[_native.Watchdog]):
    """Expires when nobody has kicked it in time."""

    __slots__ = ()

    def kick(self, expires: Seconds) -> None:
        """Sets the time at which it expires, from now.

        Raises:
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        wait_blocking(self._native.kick(expires))

    async def kick_async(self, expires: Seconds) -> None:
        """`kick` for coroutines."""
        await wait(self._native.kick(expires))

    def wait(self, timeout: Seconds | None = None) -> None:
        """Waits until it has expired. One that was never kicked expires 60 s after the first wait.

        Raises:
            TimedOut: It was kicked in time. Default: the timeout of the locker.
        """
        wait_blocking(self._native.wait(timeout))

    async def wait_async(self, timeout: Seconds | None = None) -> None:
        """`wait` for coroutines."""
        await wait(self._native.wait(timeout))


class Latch(Primitive[_native.Latch]):
    """Opens when it was counted down so many times."""

    __slots__ = ()

    def count_down(self) -> int:
        """Counts once, and returns how many are left.

        Raises:
            Unavailable: The store has not answered for up to 5 s, whatever the timeout of the locker is.
        """
        return wait_blocking(self._native.count_down())

    async def count_down_async(self) -> int:
        """`count_down` for coroutines."""
        return await wait(self._native.count_down())

    def wait(self, timeout: Seconds | None = None) -> None:
        """Waits until it is open.

        Raises:
            TimedOut: It is not. Default: the timeout of the locker.
        """
        wait_blocking(self._native.wait(timeout))

    async def wait_async(self, timeout: Seconds | None = None) -> None:
        """`wait` for coroutines."""
        await wait(self._native.wait(timeout))


class Barrier(Primitive[_native.Barrier]):
    """Lets callers pass as soon as so many have arrived; then the next round begins."""

    __slots__ = ()

    def wait(self, timeout: Seconds | None = None) -> None:
        """Waits for the others.

        Raises:
            TimedOut: Too few have come, and this caller is not counted. Default: the timeout of the locker.
            Conflict: The only round of a barrier with ``once=True`` is over.
        """
        wait_blocking(self._native.wait(timeout))

    async def wait_async(self, timeout: Seconds | None = None) -> None:
        """`wait` for coroutines."""
        await wait(self._native.wait(timeout))
