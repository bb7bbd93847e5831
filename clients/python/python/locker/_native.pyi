"""The native half of the package. Not public: anything here may change in any version.

Times are seconds (`10`, `0.5`), texts (`"800ms"`, `"1m 30s"`) or `datetime.timedelta`. `math.inf` as a timeout waits
indefinitely. `None` means everywhere: not given, the default of the locker applies.

Nothing here blocks, except `Call.wait`, `Bridge.wait` and `events`. What may wait returns a `Call`, which nothing
happens for until it is waited for or polled. Errors are the classes of `locker._errors`, raised by `Call.wait` and
`Call.poll`, and at once for arguments that are wrong (`Misused`). The class of a kind is that in `BY_KIND`, or else
`LockerError`. Its constructor is called with
`cls(message, key=str | None, function=str | None, retry_after=float | None, is_temporary=bool, is_certain=bool)`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from types import GenericAlias
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack, final

from ._options import AfterCrash, Algorithm, Mode, Release, Seconds

__all__ = [
    "__version__",
    "PENDING",
    "Bridge",
    "Call",
    "Pending",
    "Guard",
    "Guards",
    "Admission",
    "Barrier",
    "Counter",
    "Election",
    "Event",
    "Latch",
    "Leader",
    "Observer",
    "Done",
    "Once",
    "OnceKeep",
    "OncePer",
    "RateLimiter",
    "Watchdog",
    "Holder",
    "Inspection",
    "Function",
    "Key",
    "Locker",
    "Control",
    "Outage",
    "controlled",
    "events",
    "keep_events",
    "forked",
    "part_text",
]

_T_co = TypeVar("_T_co", covariant=True)

_KeyFormat: TypeAlias = Literal["escaped", "python"]
_Part: TypeAlias = Literal["lock", "semaphore", "rate", "once"]

class _LockerOptions(TypedDict, total=False):
    """The options of a locker. `release` and the others of a hold are for calls without their own."""

    lease: Seconds | None
    timeout: Seconds | None
    max_retry: int | None
    retry_delay: Seconds | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None
    release: Release | None
    prefix: str
    key_format: _KeyFormat
    note: str | None
    tls_ca: str | bytes | None
    strict: Seconds | None
    wait_replicas: int | None
    wait_timeout: Seconds | None
    allow_eviction: bool
    command_timeout: Seconds | None

class _ElectionOptions(TypedDict, total=False):
    """The options of an election. Without `stop_before` it is that of the locker, or a fifth of the lease."""

    lease: Seconds | None
    note: str | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None

class _OnceOptions(TypedDict, total=False):
    """The options of what runs once per slot. Without `timeout` it is half of a slot."""

    from_: Seconds | None
    early: Seconds | None
    lease: Seconds | None
    timeout: Seconds | None
    after_crash: AfterCrash | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None

class _KeepOptions(TypedDict, total=False):
    """The options of what runs once for as long as its result is kept. Without `timeout` it is that of the locker."""

    max_size: int | None
    lease: Seconds | None
    timeout: Seconds | None
    after_crash: AfterCrash | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None

class _HoldOptions(TypedDict, total=False):
    """The options of a call that acquires.

    With `try_once` the call tries once and returns `None` in place of the guard if the lock is held. `inside` are the
    holds of the bodies around the call: if it would wait for one of them, `Misused` is raised. With
    `release="on_expiry"` the default of `timeout` is 0.
    """

    function: Function | None
    try_once: bool
    lease: Seconds | None
    timeout: Seconds | None
    max_retry: int | None
    retry_delay: Seconds | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None
    release: Release | None
    inside: Sequence[Guard | Guards]

@final
class Pending:
    def __reduce__(self) -> str: ...

PENDING: Final[Pending]
"""What `Call.poll` returns while nothing is known yet."""

__version__: Final[str]
"""The version of the runtime."""

@final
class Bridge:
    """Wakes one event loop of one process, through a file descriptor that the loop watches.

    A thread that wakes a call notes its token here, and never takes the GIL. A forked child makes bridges of its own:
    `Call.poll` refuses one of the parent.
    """

    def __new__(cls) -> Bridge: ...
    def fileno(self) -> int:
        """Returns the descriptor, which is readable while tokens are noted; -1 once closed."""

    def drain(self) -> list[int]:
        """Returns the tokens noted since the last call, each once, and makes the descriptor unreadable."""

    def wait(self) -> list[int]:
        """Blocks this thread, without the GIL, until a token is noted or the bridge is closed; then drains.

        For loops that watch no descriptors.
        """

    def close(self) -> None:
        """Closes the descriptor. Later wake-ups do nothing."""

@final
class Call(Generic[_T_co]):
    """One operation. Dropping it gives it up: a waiter leaves its queue, an unclaimed grant is returned."""

    @classmethod
    def __class_getitem__(cls, key: object) -> GenericAlias: ...
    def wait(self) -> _T_co:
        """Blocks this thread, without the GIL, until the result is known.

        On the main thread signals are handled every 50 ms. If a handler raises, the call is given up.
        """

    def poll(self, bridge: Bridge, token: int) -> _T_co | Pending:
        """Returns the result, raises the error, or returns `PENDING` and later notes `token` at the bridge, once or
        more often. Tokens that come after the result are stale: ignore them."""

    def close(self) -> None:
        """Gives the call up, if it is not over."""

    @property
    def is_done(self) -> bool:
        """Whether the result was returned, an error was raised, or the call was given up."""

@final
class Key:
    """A whole key, as the store receives it. `str()` is the text; equal texts are equal keys."""

    def __new__(cls, text: str) -> Key: ...
    def __str__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Function:
    """A decorated function: its digest in keys, and its name for errors and operators."""

    def __new__(cls, path: str, file: str = "", line: int = 0) -> Function:
        """`path` is the `name` of the decorator, or module and qualified name, joined by `.`."""

    @property
    def path(self) -> str: ...
    @property
    def digest(self) -> str:
        """The md5 of the path, whose segments are joined by `:`."""

def part_text(value: object, key_format: _KeyFormat = "escaped") -> str:
    """Returns what a key contains for `value`, before escaping.

    In the format `escaped`, `bool`, `int` and `float` are written as Rust writes them (`true`, `1`); everything else,
    and everything in the format `python`, as `str` writes it. Raises `Misused`, naming the type, if that text would
    differ from process to process: an address, or a set.
    """

@final
class Guard:
    """A hold. Its lease is renewed in the background until it is released, lost or garbage-collected.

    Garbage collection releases in the background. In a forked child the copy holds nothing and releases nothing.
    """

    @property
    def key(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def id(self) -> str:
        """32 hexadecimal digits that no other hold of the store has."""

    @property
    def remaining(self) -> float:
        """Seconds of the lease that are left by the local clock; 0.0 if it may be over, and after `release`."""

    @property
    def slot(self) -> datetime | None:
        """When the slot of a run begins, with a time zone; `None` if it is none of `once_per`."""

    @property
    def missed(self) -> int:
        """How many slots before that of a run had no success, since the last one that had."""

    @property
    def is_held(self) -> bool: ...
    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""

    def warn_if_dropped(self) -> None:
        """Makes this emit a `ResourceWarning` if it is garbage-collected while it is held."""

    def check(self) -> None:
        """Raises `Lost` if the lease may be over, `NotHeld` after `release`, `Misused` in a forked child."""

    def release(self, *, bounded: bool = False) -> Call[None]:
        """Ends the hold. With `bounded` it waits no longer than `command_timeout`, as the end of a function does.

        Raises `Lost` if it was over before. Giving the call up releases in the background. The second call of this
        method raises `NotHeld`.
        """

    def abandon(self) -> Call[None]:
        """Ends a run whose outcome nobody knows: as `release`, or by its lease if crashes are refused."""

    def finish(self) -> Call[None]:
        """Ends a run with success, and waits as `release` does. Raises as that does.

        It begins at once. Giving the call up changes nothing. `Misused` for a hold that is no run.
        """

    def finish_with(self, text: bytes | None) -> Call[None]:
        """As `finish`, and keeps this JSON text of the result, unless it is too long. `None`: it has none."""

    def lost(self) -> Call[None]:
        """Waits until the hold is lost. Never ends after `release`. Keeps nothing held."""

    def loss(self) -> Exception:
        """Returns the `Lost` that says why the hold is over. For the time after `lost`."""

@final
class Guards:
    """Several holds, in the order of their keys: as a `Guard`, of all together."""

    @property
    def each(self) -> list[Guard]:
        """The guards. They share their holds with this object: `release` on either side counts for both."""

    @property
    def remaining(self) -> float: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def is_released(self) -> bool: ...
    def warn_if_dropped(self) -> None: ...
    def check(self) -> None: ...
    def release(self, *, bounded: bool = False) -> Call[None]: ...
    def lost(self) -> Call[None]: ...
    def loss(self) -> Exception: ...

@final
class Admission:
    """An admitted call."""

    @property
    def remaining(self) -> int:
        """How many tokens are left."""

    @property
    def reset_after(self) -> float:
        """How many seconds until all tokens are available again."""

@final
class RateLimiter:
    @property
    def key(self) -> str: ...
    def acquire(self, tokens: int = 1, timeout: Seconds | None = None) -> Call[Admission]: ...
    def try_acquire(self, tokens: int = 1) -> Call[Admission | None]: ...

@final
class Counter:
    @property
    def key(self) -> str: ...
    def add(self, by: int = 1) -> Call[int]: ...
    def get(self) -> Call[int]: ...
    def set(self, value: int) -> Call[None]: ...

@final
class Event:
    @property
    def key(self) -> str: ...
    def wait(self, timeout: Seconds | None = None) -> Call[str]: ...
    def send(self, message: str = "") -> Call[None]: ...
    def reset(self) -> Call[None]: ...

@final
class Watchdog:
    @property
    def key(self) -> str: ...
    def kick(self, expires: Seconds) -> Call[None]: ...
    def wait(self, timeout: Seconds | None = None) -> Call[None]: ...

@final
class Latch:
    @property
    def key(self) -> str: ...
    def count_down(self) -> Call[int]: ...
    def wait(self, timeout: Seconds | None = None) -> Call[None]: ...

@final
class Barrier:
    @property
    def key(self) -> str: ...
    def wait(self, timeout: Seconds | None = None) -> Call[None]: ...

@final
class Election:
    """An election of a leader, who holds the lock at the key."""

    @property
    def key(self) -> str: ...
    def term(
        self, *, function: Function | None = None, inside: Sequence[Guard | Guards] | None = None
    ) -> Call[Guard]:
        """Waits until this candidate is elected, also while the store cannot be reached. Lasts as a hold does.

        Errors name `function`. `inside` are the holds of the bodies around the call.
        """

    def observe(self) -> Call[Observer]:
        """Looks at the election. The result goes on looking."""

@final
class Once:
    """A record of what has run."""

    @property
    def key(self) -> str: ...
    def per(self, every: Seconds, **options: Unpack[_OnceOptions]) -> OncePer:
        """Makes one success count for a slot of time."""

    def keep(
        self, keep: Seconds, *, same: Iterable[object] | None = None, **options: Unpack[_KeepOptions]
    ) -> OnceKeep:
        """Keeps the result of a success for so long, for calls that have the values `same` in common with it.

        Raises `Misused` for a value that cannot be part of a key.
        """

@final
class OncePer:
    """What runs once in each slot of time."""

    @property
    def key(self) -> str: ...
    def begin(
        self, *, function: Function | None = None, inside: Sequence[Guard | Guards] | None = None
    ) -> Call[Guard | None]:
        """Begins a run. The result is `None` if the call is skipped. The release of the guard is a failure.

        Errors name `function`. `inside` are the holds of the bodies around the call.
        """

@final
class OnceKeep:
    """What runs once for as long as its result is kept."""

    @property
    def key(self) -> str: ...
    def begin(
        self, *, function: Function | None = None, inside: Sequence[Guard | Guards] | None = None
    ) -> Call[Guard | Done]:
        """Begins a run, or returns the success of another one. The release of the guard is a failure.

        Errors name `function`. `inside` are the holds of the bodies around the call.
        """

@final
class Done:
    """The success of another run."""

    @property
    def text(self) -> bytes:
        """The JSON text of its result. Raises `Conflict` if that was not kept."""

    def unread(self) -> Exception:
        """Returns the `Conflict` of a result that cannot be read."""

@final
class Observer:
    """A view of an election from outside, which looks until it is garbage-collected."""

    @property
    def leader(self) -> Leader | None:
        """The leader at the latest look; `None` if there was none."""

    def changed(self, timeout: Seconds | None = None) -> Call[None]:
        """Waits until the leader, or what is known of it, is not what `leader` has shown last. Default: for ever."""

@final
class Leader:
    """A leader, as others see it."""

    __hash__: ClassVar[None]  # type: ignore[assignment]
    @property
    def note(self) -> str | None:
        """What the leader says about itself; `None` if it is not known yet."""

    @property
    def fence(self) -> int:
        """The fence of its term, which is higher than those of all terms before."""

    @property
    def since(self) -> datetime | None:
        """When its term began, by the clock of the store, with a time zone. `None` on etcd and ZooKeeper."""

    def __eq__(self, other: object, /) -> bool: ...

@final
class Holder:
    """One hold, as others see it."""

    def __new__(
        cls,
        fence: int,
        permits: int = 1,
        age: float | None = None,
        time_left: float | None = None,
        note: str | None = None,
        function: str | None = None,
        file: str | None = None,
        line: int | None = None,
    ) -> Self: ...
    @property
    def fence(self) -> int: ...
    @property
    def permits(self) -> int: ...
    @property
    def age(self) -> float | None:
        """Seconds since the grant, if that is known."""

    @property
    def time_left(self) -> float | None:
        """Seconds that it lasts without a renewal; `None` if without end."""

    @property
    def note(self) -> str | None:
        """What the holder's locker says about itself, by default host and process; `None` if it is not known."""

    @property
    def function(self) -> str | None:
        """The function that the key belongs to, in `error.blocked`; `None` if it is not known, and in inspections."""

    @property
    def file(self) -> str | None:
        """The file of the function."""

    @property
    def line(self) -> int | None:
        """The line of the function."""

@final
class Inspection:
    """The state of one key. What its kind of primitive does not have is `None`."""

    @property
    def size(self) -> int | None:
        """The total: permits, tokens per interval, parties of a barrier, or the count of a latch."""

    @property
    def used(self) -> int | None: ...
    @property
    def holders(self) -> list[Holder]:
        """The current holds, oldest first."""

    @property
    def waiting(self) -> int:
        """The number of waiting callers."""

    @property
    def resets_in(self) -> float | None:
        """Seconds until all that is used is free again, or a watchdog expires."""

    @property
    def fired(self) -> bool | None:
        """Whether the event was sent, the watchdog has expired, the latch is open, or the barrier has had its last
        round."""

    @property
    def value(self) -> int | None:
        """The value of a counter."""

@final
class Locker:
    """A store with defaults. The first call that is made opens it, once in each process, and waits for no server.

    A `str` in the place of a name makes the key of a named primitive (`lock:NAME`); a `Key` is used as it is.
    """

    def __new__(cls, url: str | None = None, **options: Unpack[_LockerOptions]) -> Locker:
        """Raises `Misused` for a URL or an option that no store accepts. Without a URL: `LOCKER_URL`, read at the
        first use, else `memory://` with a warning."""

    @property
    def url(self) -> str | None:
        """The URL without its login; `None` if none was given."""

    @property
    def prefix(self) -> str: ...
    @property
    def key_format(self) -> _KeyFormat: ...
    @property
    def is_shared(self) -> bool:
        """Whether other processes share the store."""

    def open(self) -> Call[None]:
        """Opens the store and waits for its first answer. Not needed: every call opens it."""

    def settled(self) -> Call[None]:
        """Waits until the background work is done: releases of dropped guards, cancellations. Opens nothing."""

    def ping(self) -> Call[None]:
        """Sends one request to the store, and waits for its answer."""

    def inspect(self, key: Key) -> Call[Inspection | None]:
        """Looks at a key without changing it. The result is `None` if the key is not in use."""

    def named_key(self, kind: str, name: str | Key) -> Key:
        """Returns the key of the primitive of this kind (`lock`, `rwlock`, `semaphore`) and name; a `Key` as it is."""

    def function_key(self, function: Function, parts: Iterable[object] | None = None, part: _Part = "lock") -> Key:
        """Returns the key that the attributes of Rust make for this function and these arguments, see `part_text`."""

    def lock(self, name: str | Key, **options: Unpack[_HoldOptions]) -> Call[Any]:
        """Acquires the exclusive lock. The result is a `Guard`, with `try_once` or `None`."""

    def read_lock(self, name: str | Key, **options: Unpack[_HoldOptions]) -> Call[Any]: ...
    def write_lock(self, name: str | Key, **options: Unpack[_HoldOptions]) -> Call[Any]: ...
    def semaphore(
        self,
        name: str | Key,
        size: int,
        permits: int = 1,
        **options: Unpack[_HoldOptions],
    ) -> Call[Any]: ...
    def lock_all(
        self,
        names: Iterable[str | Key],
        *,
        mode: Mode | None = None,
        **options: Unpack[_HoldOptions],
    ) -> Call[Any]:
        """Acquires all of these locks or none, in the order of their keys, each once. The result are `Guards`."""

    def rate_limiter(
        self,
        name: str | Key,
        size: int,
        interval: Seconds,
        *,
        algorithm: Algorithm = "token_bucket",
        burst: int | None = None,
        wait_past_timeout: bool = False,
        cache_refusals: bool = True,
        function: Function | None = None,
    ) -> RateLimiter: ...
    def counter(self, name: str) -> Counter: ...
    def event(self, name: str, *, keep: Seconds | None = None) -> Event: ...
    def watchdog(self, name: str) -> Watchdog: ...
    def latch(self, name: str, count: int) -> Latch: ...
    def barrier(self, name: str, parties: int, *, once: bool = False) -> Barrier: ...
    def election(self, name: str, **options: Unpack[_ElectionOptions]) -> Election: ...
    def once(self, name: str | Key) -> Once: ...

@final
class Control:
    """Controls the store of one locker under test."""

    def advance(self, by: Seconds) -> None:
        """Moves time on for the store and its holds."""

    def lose(self, key: Key) -> bool:
        """Ends the holds of a key by force. Returns whether any caller held it. Raises `Unavailable` in an outage."""

    def outage(self) -> Outage:
        """Makes all calls to the store raise `Unavailable` until the end of the outage."""

@final
class Outage:
    """An outage of a store, which ends when this is collected at the latest."""

    def end(self) -> None:
        """Ends it. Harmless if it has ended."""

def controlled(**options: Unpack[_LockerOptions]) -> tuple[Locker, Control]:
    """Returns a locker on a store of its own in this process, and what controls the store. Raises `Misused`."""

def keep_events(level: int) -> None:
    """Makes the runtime keep its events of this level of `logging` and above for `events`."""

def events(*, wait: bool = True) -> list[tuple[int, str, list[tuple[str, str]]]]:
    """Returns the events since the last call as level, message and fields.

    Blocks this thread, without the GIL, while there are none, unless `wait` is false.
    """

def forked() -> None:
    """Tells the runtime that this process was forked. Harmless in any other. For `os.register_at_fork`."""
