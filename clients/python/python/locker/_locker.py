"""Lockers: a store and the defaults of its calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from . import _native, _process
from ._decorators import Decorators
from ._election import Election
from ._errors import Misused
from ._guards import Guard, Guards
from ._native import Inspection
from ._once import Once
from ._options import (
    Algorithm,
    ElectionOptions,
    Mode,
    RequestOptions,
    Seconds,
    Settings,
    StoreOptions,
    check_on_expiry,
    election_options,
)
from ._primitives import Barrier, Counter, Event, HasKey, Latch, RateLimiter, Watchdog
from ._requests import Request
from ._waiting import wait, wait_blocking

Held = TypeVar("Held", bound=Guard | Guards)

_KEY: Final = re.compile(
    r"(^|[/:])(lock|leader|once|rwlock|semaphore|rate|event|watchdog|barrier|latch|counter):"
    r"|[0-9a-f]{32}:(lock|semaphore|rate|once)\|"
)
"""What keys have and other texts have not: a kind after the prefix, or the digest of a function."""


class Locker(Decorators):
    """Locks, limits and coordination on one store. Cheap to make, and shared by all threads and tasks.

    The store is opened by the first call that needs it, in each process anew: a locker may be made before a fork.

    Args:
        url: The store: ``memory://`` (this process), ``file:///DIR`` (this host), ``redis://HOST``,
            ``postgres://HOST/DATABASE``, ``mysql://HOST/DATABASE``, ``etcd://HOST``, ``zk://HOST``. Default: the
            environment variable ``LOCKER_URL``. Without it, locks are kept in the memory of this process, and exclude
            no other process. One warning says so.
        **settings: The defaults of all calls, and options of the store. See `Settings`.

    Raises:
        Misused: The URL or a setting is wrong.

    Example:
        >>> locker = Locker("memory://", lease=30)
        >>> with locker.lock("invoice 7") as guard:
        ...     assert guard.is_held
    """

    def __init__(self, url: str | None = None, **settings: Unpack[Settings]) -> None:
        self._url = url
        self._settings = settings
        self._native = _native.Locker(url, **settings)
        _process.remember(self._native)

    @classmethod
    def _of(cls, native: _native.Locker, url: str, settings: Settings) -> Locker:
        locker = cls.__new__(cls)
        locker._url, locker._settings, locker._native = url, settings, native
        _process.remember(native)
        return locker

    def lock(self, name: str, **options: Unpack[RequestOptions]) -> Request[Guard]:
        """Returns a request for the exclusive lock of this name."""
        return self._request(self._native.lock, self._native.named_key("lock", name), Guard, options)

    def lock_on(self, name: str, *parts: object, **options: Unpack[RequestOptions]) -> Request[Guard]:
        """Returns a request for the lock that ``lock_on_argument(name=name)`` takes for these arguments."""
        key = self._native.function_key(_native.Function(name), parts)
        return self._request(self._native.lock, key, Guard, options)

    def lock_all(
        self, names: Iterable[str], *, mode: Mode | None = None, **options: Unpack[RequestOptions]
    ) -> Request[Guards]:
        """Returns a request for several locks: all or none, without deadlock, whatever their order."""
        if isinstance(names, str):
            raise Misused("lock_all() takes the names of several locks, not one name")
        if mode not in (None, "read", "write"):
            raise Misused(f'mode={mode!r}: it is "read" or "write"')
        keys = [self._native.named_key("rwlock" if mode else "lock", name) for name in names]
        return self._request(partial(self._native.lock_all, mode=mode), keys, Guards, options)

    def read_lock(self, name: str, **options: Unpack[RequestOptions]) -> Request[Guard]:
        """Returns a request for the read/write lock of this name, to hold it together with other readers."""
        return self._request(self._native.read_lock, self._native.named_key("rwlock", name), Guard, options)

    def write_lock(self, name: str, **options: Unpack[RequestOptions]) -> Request[Guard]:
        """Returns a request for the read/write lock of this name, to hold it alone."""
        return self._request(self._native.write_lock, self._native.named_key("rwlock", name), Guard, options)

    def semaphore(
        self, name: str, size: int, *, permits: int = 1, **options: Unpack[RequestOptions]
    ) -> Request[Guard]:
        """Returns a request for permits of the semaphore of this name.

        Args:
            name: The name.
            size: How many permits there are. The most recent value applies to all callers.
            permits: How many to take, all or nothing.
            **options: See `RequestOptions`.
        """
        ask = partial(self._native.semaphore, size=size, permits=permits)
        return self._request(ask, self._native.named_key("semaphore", name), Guard, options)

    def rate_limiter(
        self,
        name: str,
        size: int,
        per: Seconds,
        *,
        timeout: Seconds | None = None,
        algorithm: Algorithm = "token_bucket",
        burst: int | None = None,
        wait_past_timeout: bool = False,
        cache_refusals: bool = True,
    ) -> RateLimiter:
        """Returns the rate limiter of this name.

        Args:
            name: The name.
            size: How many tokens there are per time. The most recent value applies to all callers.
            per: The time.
            timeout: The longest wait of a call. Default: that of the locker.
            algorithm: ``"token_bucket"``, ``"fixed_window"`` or ``"gcra"``.
            burst: How many tokens at once, with ``"gcra"`` only. Default: the size.
            wait_past_timeout: Whether a call that is not admitted in time waits until its timeout ends all the same.
            cache_refusals: Whether to refuse calls for up to 50 ms without asking, after the store has refused one.
        """
        limiter = self._native.rate_limiter(
            name,
            size,
            per,
            algorithm=algorithm,
            burst=burst,
            wait_past_timeout=wait_past_timeout,
            cache_refusals=cache_refusals,
        )
        return RateLimiter(limiter, timeout)

    def event(self, name: str, *, keep: Seconds | None = None) -> Event:
        """Returns the event of this name, which is kept for so long after it was sent: 24 h by default."""
        return Event(self._native.event(name, keep=keep))

    def watchdog(self, name: str) -> Watchdog:
        """Returns the watchdog of this name."""
        return Watchdog(self._native.watchdog(name))

    def barrier(self, name: str, parties: int, *, once: bool = False) -> Barrier:
        """Returns the barrier of this name, which so many callers pass together, over and over or only once."""
        return Barrier(self._native.barrier(name, parties, once=once))

    def latch(self, name: str, count: int) -> Latch:
        """Returns the latch of this name, which opens when it was counted down so many times."""
        return Latch(self._native.latch(name, count))

    def counter(self, name: str) -> Counter:
        """Returns the counter of this name."""
        return Counter(self._native.counter(name))

    def elect(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """Returns the election of this name: to take part in it, or to observe it. `leader` decorates a function."""
        return Election(self._native.election(name, **election_options(options)))

    def once(self, name: str) -> Once:
        """Returns the record of this name: of several callers one runs.

        `once_per` and `idempotent` decorate functions.
        """
        return Once(self._native.once(name))

    def ping(self) -> None:
        """Asks the store for an answer, and opens it before if needed.

        Raises:
            Unavailable: It does not answer.
        """
        wait_blocking(self._native.ping())

    async def ping_async(self) -> None:
        """`ping` for coroutines."""
        await wait(self._native.ping())

    def inspect(self, of: str | HasKey) -> Inspection | None:
        """Looks at what a key stands for. It takes nothing and changes nothing.

        Args:
            of: What has a key: a request such as ``locker.lock("invoice 7")`` or ``locker.lock_on("order.ship", 7)``,
                a guard, an event or another handle; or a whole key, such as that of an error.

        Returns:
            Its holders and waiters, or ``None`` if it is not in use.

        Raises:
            Misused: It is no key, but a name: locks, semaphores and so on of one name have keys of their own.
            Unavailable: The store has not answered for up to 5 s.
        """
        return wait_blocking(self._native.inspect(self._key_of(of)))

    async def inspect_async(self, of: str | HasKey) -> Inspection | None:
        """`inspect` for coroutines."""
        return await wait(self._native.inspect(self._key_of(of)))

    def settled(self) -> None:
        """Waits until the background work is done: the releases of dropped guards and of cancelled calls.

        The end of the process waits for it, too, but no longer than 2 s.
        """
        wait_blocking(self._native.settled())

    async def settled_async(self) -> None:
        """`settled` for coroutines."""
        await wait(self._native.settled())

    @property
    def url(self) -> str | None:
        """The URL without its login; ``None`` if none was given."""
        return self._native.url

    def _key_of(self, of: str | HasKey, call: str = "inspect") -> _native.Key:
        key = of if isinstance(of, str) else getattr(of, "key", None)
        if not isinstance(key, str):
            raise Misused(f"{call}({of!r}): give a key, or what has one: a request, a guard, an event, ..")
        is_key = _KEY.search(key.removeprefix(self._native.prefix)) if isinstance(of, str) else ":" in key
        if not is_key:
            instead = f"give the request, as in {call}(locker.lock({of!r}))"
            raise Misused(f"{call}({of!r}): this is a name and no key: {instead}")
        return _native.Key(key)

    def _request(
        self,
        ask: Callable[..., _native.Call[Any]],
        key: _native.Key | list[_native.Key],
        guard: type[Held],
        options: RequestOptions,
    ) -> Request[Held]:
        asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        unknown = asked.keys() - RequestOptions.__optional_keys__
        if unknown:
            raise TypeError(f"there is no option {min(unknown)!r}")
        check_on_expiry(asked)
        on_lost = asked.pop("on_lost", None)
        if on_lost not in (None, "cancel", "error", "continue"):
            raise Misused(f'on_lost={on_lost!r}: it is "cancel", "error" or "continue"')
        outlasts = asked.get("release") == "on_expiry"
        keys = [str(one) for one in key] if isinstance(key, list) else [str(key)]
        return Request(partial(ask, key, **asked), lambda hold: guard(hold, on_lost, outlasts), on_lost, keys)

    def __repr__(self) -> str:
        return f"<locker.{type(self).__name__} {self.url or 'LOCKER_URL'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        url = self._url or _process.default_url()
        if url.startswith("memory:"):
            raise TypeError("a locker of memory:// cannot be pickled: another process does not share it")
        return _restore, (type(self), self._url, self._settings)


class RedisLocker(Locker):
    """The class of the decorator ``@locker.lock_on_argument(expr, *positions)``, with its arguments and keys.

    Programs that use the decorator's own code, and functions of other languages with the same name, share its locks.

    Args:
        redis_dsn: The URL of the Redis.
        max_retry: The number of attempts, the first included.
        retry_delay: The time between two attempts. A hand-off comes at once.
        timeout: The longest wait.
        **settings: See `StoreOptions`.

    Example:
        >>> locker = RedisLocker("redis://10.0.0.7")
        >>> @locker.lock_on_argument(3, 0, 1)
        ... def withdraw(bank_card_id, amount, *args):
        ...     ...
    """

    def __init__(
        self,
        redis_dsn: str,
        max_retry: int | None = 3,
        retry_delay: Seconds = 2,
        timeout: Seconds = 10,
        **settings: Unpack[StoreOptions],
    ) -> None:
        self.max_retry: int | None = max_retry
        self.retry_delay: Seconds = retry_delay
        self.timeout: Seconds = timeout
        settings.setdefault("key_format", "python")
        super().__init__(redis_dsn, max_retry=max_retry, retry_delay=retry_delay, timeout=timeout, **settings)


def _restore(kind: type[Locker], url: str | None, settings: Settings) -> Locker:
    return kind(url, **settings)
