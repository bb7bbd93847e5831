"""What goes wrong: one class for each kind of error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ._native import Holder

__all__ = [
    "BY_KIND",
    "Blocked",
    "Conflict",
    "Deadlock",
    "Limited",
    "LockerError",
    "Lost",
    "Misused",
    "NotHeld",
    "RetriesExhausted",
    "TimedOut",
    "Unavailable",
]


@dataclass(frozen=True)
class Blocked:
    """What stood in the way of a call that waited for a lock or for permits.

    Attributes:
        holders: The holders as of the end of the wait. Empty if the store did not tell within 100 ms.
        ahead: How many callers waited ahead of this one, if that is known.
        place: The file and the line of the decorated function, if there is one.
    """

    holders: list[Holder]
    ahead: int | None
    place: str | None
    _text: str = field(repr=False)

    def __str__(self) -> str:
        """Return the text that the message of the error has, too."""
        return self._text


class LockerError(Exception):
    """The base of all errors of this package.

    Attributes:
        key: The key in the store, if the error is about one.
        function: The decorated function whose call failed, if there is one.
        is_temporary: Whether the same call may succeed later.
        is_certain: Whether the store has provably not carried out what was asked. Only of interest for calls that
            change something and are not repeated, such as ``counter.add``.
        blocked: What stood in the way of a call that waited for 1 s or longer: the holders, the callers ahead, and
            the place of the function. Only of ``TimedOut`` and ``RetriesExhausted``.
    """

    key: str | None
    function: str | None
    is_temporary: bool
    _is_temporary: ClassVar[bool] = False
    is_certain: bool
    blocked: Blocked | None
    _retry_after: float | None

    def __init__(
        self,
        message: str = "",
        *,
        key: str | None = None,
        function: str | None = None,
        retry_after: float | None = None,
        is_temporary: bool | None = None,
        is_certain: bool = True,
        blocked: Blocked | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.function = function
        self.is_temporary = self._is_temporary if is_temporary is None else is_temporary
        self.is_certain = is_certain
        self.blocked = blocked
        self._retry_after = retry_after

    @property
    def retry_after(self) -> float | None:
        """In how many seconds to try again, if that is known."""
        return self._retry_after


class TimedOut(LockerError, TimeoutError):
    """The wait did not end within ``timeout``.

    With ``release="on_expiry"`` it says that the function was called within the last lease.
    """

    _is_temporary = True


class RetriesExhausted(LockerError):
    """``max_retry`` attempts have failed."""

    _is_temporary = True


class Deadlock(LockerError):
    """The call would wait for itself: the caller holds what others wait for, which it waits for.

    Return from the function that holds it; then the call may be repeated. The others go on.
    """

    _is_temporary = True


class Limited(LockerError):
    """A rate limit refused the call."""

    _is_temporary = True

    @property
    def retry_after(self) -> float:
        """In how many seconds the call would be admitted; infinite while the limit is 0."""
        return float("inf") if self._retry_after is None else self._retry_after


class Lost(LockerError):
    """The lease ended before the work did. The work may be half done, or done beside the next holder."""


class Conflict(LockerError):
    """The key is of another kind, the event was sent already, a counter overflows, or the name was deleted.

    Of ``idempotent``: the call with this key has other values in ``same``, or has run and its result was not kept.
    """


class NotHeld(LockerError):
    """The guard was released already. It is raised by ``release``, ``check``, ``with`` and ``async with``."""


class Unavailable(LockerError, ConnectionError):
    """The store cannot be reached, or cannot serve now."""

    _is_temporary = True


class Misused(LockerError, ValueError):
    """A URL, an option, a name or a number is wrong, or a call waits for a lock that its caller holds."""


BY_KIND: dict[str, type[LockerError]] = {
    "TimedOut": TimedOut,
    "RetriesExhausted": RetriesExhausted,
    "Deadlock": Deadlock,
    "Limited": Limited,
    "Lost": Lost,
    "Conflict": Conflict,
    "Unavailable": Unavailable,
    "Misused": Misused,
    "NotHeld": NotHeld,
}
"""The class of each kind, by the name that it has in Rust."""

for _class in (LockerError, Blocked, *BY_KIND.values()):
    # The name that tracebacks show is the one to catch.
    _class.__module__ = "locker"
