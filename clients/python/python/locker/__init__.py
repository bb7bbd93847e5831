"""Distributed locks, rate limits and coordination, as decorators and by hand.

A native extension over the Rust library ``locker``: the same stores, queues, leases and keys, so that functions of
both languages exclude each other.

Every method that waits has a twin for coroutines, whose name ends in ``_async``; ``with`` becomes ``async with``.
Times are seconds, texts such as ``"800ms"``, or ``timedelta``.
"""

from ._binding import Part
from ._election import Election, Observer
from ._errors import (
    Blocked,
    Conflict,
    Deadlock,
    Limited,
    LockerError,
    Lost,
    Misused,
    NotHeld,
    RetriesExhausted,
    TimedOut,
    Unavailable,
)
from ._guards import Guard, Guards
from ._locker import Locker, RedisLocker
from ._native import Admission, Holder, Inspection, Leader, __version__
from ._once import Once, OnceKeep, OncePer
from ._options import (
    AfterCrash,
    Algorithm,
    ElectionOptions,
    HoldOptions,
    IdempotentOptions,
    Mode,
    OnceOptions,
    OnLost,
    Release,
    RequestOptions,
    Seconds,
    Settings,
    StoreOptions,
    WaitOptions,
)
from ._primitives import Barrier, Counter, Event, HasKey, Latch, RateLimiter, Watchdog
from ._requests import Request
from ._wrapping import Decorator, GuardDecorator, OnceDecorator, OnceGuardDecorator, OnError

LockerExc = LockerError
"""The name of the base of errors in the code of the decorator that `RedisLocker` takes the place of."""

__all__ = [
    "Admission",
    "AfterCrash",
    "Algorithm",
    "Barrier",
    "Blocked",
    "Conflict",
    "Counter",
    "Deadlock",
    "Decorator",
    "Election",
    "ElectionOptions",
    "Event",
    "Guard",
    "GuardDecorator",
    "Guards",
    "HasKey",
    "HoldOptions",
    "Holder",
    "IdempotentOptions",
    "Inspection",
    "Latch",
    "Leader",
    "Limited",
    "Locker",
    "LockerError",
    "LockerExc",
    "Lost",
    "Misused",
    "Mode",
    "NotHeld",
    "Observer",
    "OnError",
    "OnLost",
    "Once",
    "OnceDecorator",
    "OnceGuardDecorator",
    "OnceKeep",
    "OnceOptions",
    "OncePer",
    "Part",
    "RateLimiter",
    "RedisLocker",
    "Release",
    "Request",
    "RequestOptions",
    "RetriesExhausted",
    "Seconds",
    "Settings",
    "StoreOptions",
    "TimedOut",
    "Unavailable",
    "WaitOptions",
    "Watchdog",
    "__version__",
]
