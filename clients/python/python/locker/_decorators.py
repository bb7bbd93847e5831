"""The methods of ``Locker`` that decorate functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar, Unpack, cast, overload

from . import _native
from ._binding import Part, Parts, describe, is_async
from ._bodies import holds_around
from ._errors import Misused
from ._guards import Guard, Guards
from ._once import KeepingRun, Run
from ._options import (
    Algorithm,
    ElectionOptions,
    HoldOptions,
    IdempotentOptions,
    Mode,
    OnceOptions,
    OnLost,
    Seconds,
    Settings,
    WaitOptions,
    check_on_expiry,
    election_options,
    idempotent_options,
    once_options,
)
from ._wrapping import (
    Ask,
    Decorator,
    GuardDecorator,
    OnceDecorator,
    OnceGuardDecorator,
    OnError,
    Target,
    decorate_hold,
    decorate_leader,
    decorate_limit,
)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

Key = Callable[..., object]


class Decorators:
    """The decorators of a locker."""

    _native: _native.Locker
    _settings: Settings

    @overload
    def lock_on_argument(
        self,
        expr: Seconds | None = None,
        *parts: Part,
        name: str | None = None,
        mode: Mode | None = None,
        each: Sequence[Part] | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: None = None,
        **options: Unpack[HoldOptions],
    ) -> Decorator: ...
    @overload
    def lock_on_argument(
        self,
        expr: Seconds | None = None,
        *parts: Part,
        name: str | None = None,
        mode: Mode | None = None,
        each: Sequence[Part] | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: str,
        **options: Unpack[HoldOptions],
    ) -> GuardDecorator: ...
    def lock_on_argument(
        self,
        expr: Seconds | None = None,
        *parts: Part,
        name: str | None = None,
        mode: Mode | None = None,
        each: Sequence[Part] | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> Decorator | GuardDecorator:
        """Runs a function only while it holds the lock on its arguments.

        Args:
            expr: The lease: how long others wait if the holder dies. It is renewed while the function runs. Default,
                also with ``None``: that of the locker, 10 s.
            *parts: The parts of the key: positions (from 0, ``self`` counts), names of parameters, or paths such as
                ``"order.id"``. Without any there is one lock for the function.
            name: Takes the place of module and function in the key. Functions of one name share their locks, in all
                languages.
            mode: ``"read"`` shares the lock with other readers, ``"write"`` holds it alone.
            each: Several locks, one for each of these parts, in place of ``parts``.
            key: A plain function that returns the part, or a tuple of parts, in place of ``parts``. It is called with
                the arguments as the signature binds them, defaults included and without the guard.
            on_error: A function of the error, whose result is returned instead. ``Misused`` is raised all the same.
            on_lost: What a lost lease does: ``"cancel"`` (default of ``async def``), ``"error"`` (default of ``def``)
                or ``"continue"``.
            guard: The parameter that gets the ``Guard`` (``Guards`` with ``each``). Callers do not pass it.
            **options: ``timeout``, ``max_retry``, ``retry_delay``, ``renew``, ``max_hold``, ``stop_before``,
                ``min_hold``, ``fair`` and ``release``, see `WaitOptions` and `HoldOptions`. With
                ``release="on_expiry"`` the function runs once per lease, and a second call raises ``TimedOut`` at
                once.

        Raises:
            Misused: The function cannot be locked, or no call of it could have such a key.
        """
        native, asked = self._native, _hold_options("lock_on_argument", expr, options)
        whole = each is not None
        if whole:
            parts = _each(each, parts, key)
        target = Target(native, parts, name, key, guard, on_error)
        hold = _kind_of_hold(native, mode, whole)
        checked = _kind_of_hold(_checker(self._settings), mode, whole)
        _check(lambda: checked(["checked"] if whole else "checked", **asked), expr)

        def ask(function: _native.Function, read: Parts) -> Ask:
            def one(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                made = read.key(native, function, read.read(args, kwargs), "lock")
                return hold(made, function=function, inside=holds_around(), **asked)

            def several(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                keys = read.keys(native, function, read.read(args, kwargs))
                return hold(keys, function=function, inside=holds_around(), **asked)

            return several if whole else one

        return _Holding(target, ask, Guards if whole else Guard, on_lost, options)

    @overload
    def limit_concurrency(
        self,
        size: int,
        expr: Seconds | None = None,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: None = None,
        **options: Unpack[HoldOptions],
    ) -> Decorator: ...
    @overload
    def limit_concurrency(
        self,
        size: int,
        expr: Seconds | None = None,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: str,
        **options: Unpack[HoldOptions],
    ) -> GuardDecorator: ...
    def limit_concurrency(
        self,
        size: int,
        expr: Seconds | None = None,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        on_lost: OnLost | None = None,
        guard: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> Decorator | GuardDecorator:
        """Lets so many calls with equal arguments run at once.

        It is a semaphore: the size of the most recent call applies to all callers.

        Args:
            size: How many calls.
            expr: The lease, as with `lock_on_argument`.
            args: The parts of the key, as with `lock_on_argument`.
            name: Takes the place of module and function in the key.
            key: A function of the same arguments that returns the part, or a tuple of parts, in place of ``args``.
            on_error: A function of the error, whose result is returned instead. ``Misused`` is raised all the same.
            on_lost: What a lost lease does, as with `lock_on_argument`.
            guard: The parameter that gets the ``Guard``. Callers do not pass it.
            **options: See `HoldOptions`.
        """
        if callable(size):
            raise Misused(f"{describe(size)}: write the decorator with brackets and a size, @..limit_concurrency(10)")
        native, asked = self._native, _hold_options("limit_concurrency", expr, options)
        target = Target(native, _parts(args), name, key, guard, on_error)
        _check(lambda: _checker(self._settings).semaphore("checked", size, **asked), expr)

        def ask(function: _native.Function, read: Parts) -> Ask:
            def one(given: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                made = read.key(native, function, read.read(given, kwargs), "semaphore")
                return native.semaphore(made, size, function=function, inside=holds_around(), **asked)

            return one

        return _Holding(target, ask, Guard, on_lost, options)

    def rate_limit(
        self,
        size: int,
        per: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        timeout: Seconds | None = None,
        algorithm: Algorithm = "token_bucket",
        burst: int | None = None,
        on_error: OnError | None = None,
    ) -> Decorator:
        """Admits so many calls with equal arguments per time.

        A call waits if it can be admitted within the timeout. Otherwise it raises ``Limited`` at once, whose
        ``retry_after`` says when to come back.

        Args:
            size: How many calls.
            per: The time.
            args: The parts of the key, as with `lock_on_argument`.
            name: Takes the place of module and function in the key.
            key: A function of the same arguments that returns the part, or a tuple of parts, in place of ``args``.
            timeout: The longest wait; 0 never waits. Default: that of the locker, 10 s.
            algorithm: ``"token_bucket"`` (all are free again every ``per``, counted from the first call),
                ``"fixed_window"`` or ``"gcra"`` (one is free again every ``per / size``).
            burst: How many calls at once, with ``"gcra"`` only. Default: the size.
            on_error: A function of the error, whose result is returned instead. ``Misused`` is raised all the same.
        """
        native = self._native
        target = Target(native, _parts(args), name, key, None, on_error)

        limit: dict[str, Any] = {"algorithm": algorithm, "burst": burst}
        checked = _checker(self._settings)
        _check(lambda: checked.rate_limiter("checked", size, per, **limit).acquire(1, timeout))

        def ask(function: _native.Function, read: Parts) -> Ask:
            def one(given: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                made = read.key(native, function, read.read(given, kwargs), "rate")
                return native.rate_limiter(made, size, per, function=function, **limit).acquire(1, timeout)

            return one

        return _Limiting(target, ask)


    @overload
    def leader(
        self,
        name: str,
        *,
        on_error: OnError | None = None,
        guard: None = None,
        **options: Unpack[ElectionOptions],
    ) -> Decorator: ...
    @overload
    def leader(
        self,
        name: str,
        *,
        on_error: OnError | None = None,
        guard: str,
        **options: Unpack[ElectionOptions],
    ) -> GuardDecorator: ...
    def leader(
        self,
        name: str,
        *,
        on_error: OnError | None = None,
        guard: str | None = None,
        **options: Unpack[ElectionOptions],
    ) -> Decorator | GuardDecorator:
        """Runs an async function on one of its callers at a time: the leader.

        A call waits until it is elected, runs the body, and ends the term with it. If the term is lost, the body is
        cancelled, and the function is called again with the same arguments in the next term of this caller. See
        ``Election.run``.

        Args:
            name: The name of the election, which ``elect`` takes, too.
            on_error: A function of the error of a call that is not elected, whose result is returned instead.
                ``Misused`` is raised all the same.
            guard: The parameter that gets the ``Guard`` of the term. Callers do not pass it.
            **options: See `ElectionOptions`.

        Raises:
            Misused: The function cannot be cancelled, or no election has such an option.
        """
        if callable(name):
            raise Misused(f"{describe(name)}: write the decorator with brackets and a name, @..leader('reaper')")
        asked = election_options(options)
        target = Target(self._native, (), name, None, guard, on_error)
        _check(lambda: _checker(self._settings).election("checked", **asked).term())
        return _Leading(target, self._native.election(name, **asked))

    @overload
    def once_per(
        self,
        every: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_skip: None = None,
        on_error: OnError | None = None,
        guard: None = None,
        **options: Unpack[OnceOptions],
    ) -> OnceDecorator[None]: ...
    @overload
    def once_per(
        self,
        every: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_skip: Callable[[], S],
        on_error: OnError | None = None,
        guard: None = None,
        **options: Unpack[OnceOptions],
    ) -> OnceDecorator[S]: ...
    @overload
    def once_per(
        self,
        every: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_skip: None = None,
        on_error: OnError | None = None,
        guard: str,
        **options: Unpack[OnceOptions],
    ) -> OnceGuardDecorator[None]: ...
    @overload
    def once_per(
        self,
        every: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_skip: Callable[[], S],
        on_error: OnError | None = None,
        guard: str,
        **options: Unpack[OnceOptions],
    ) -> OnceGuardDecorator[S]: ...
    def once_per(
        self,
        every: Seconds,
        *,
        args: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_skip: Callable[[], Any] | None = None,
        on_error: OnError | None = None,
        guard: str | None = None,
        **options: Unpack[OnceOptions],
    ) -> OnceDecorator[Any] | OnceGuardDecorator[Any]:
        """Runs a function once in each slot of time: of all calls with equal arguments, on all hosts, one runs.

        The first call of a slot runs. Others wait for it, and are skipped once it has returned. If it raises an error,
        is cancelled, or its process dies, the next call runs.

        Args:
            every: How long a slot is, from 1 s to 366 d.
            args: The parts of the key, as with `lock_on_argument`.
            name: Takes the place of module and function in the key.
            key: A function of the same arguments that returns the part, or a tuple of parts, in place of ``args``.
            on_skip: A plain function without arguments, whose result a skipped call returns. Default: ``None``.
            on_error: A function of the error, whose result is returned instead. ``Misused`` is raised all the same.
            guard: The parameter that gets the ``Guard`` of the run. Callers do not pass it.
            **options: See `OnceOptions`.

        Raises:
            Misused: The function cannot be decorated, or no run has such an option.
        """
        if callable(every):
            raise Misused(f"{describe(every)}: write the decorator with brackets and a time, @..once_per('1d')")
        native, asked = self._native, once_options(options)
        target = Target(native, _parts(args), name, key, guard, on_error, on_skip)
        _check(lambda: _checker(self._settings).once("checked").per(every, **asked).begin())

        def ask(function: _native.Function, read: Parts) -> Ask:
            def one(given: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                made = read.key(native, function, read.read(given, kwargs), "once")
                return native.once(made).per(every, **asked).begin(function=function, inside=holds_around())

            return one

        # Its types say nothing of skipped calls.
        return cast("OnceDecorator[Any]", _Holding(target, ask, Run, None, {}))

    @overload
    def idempotent(
        self,
        keep: Seconds,
        *,
        args: Part | Sequence[Part] | None = None,
        same: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        guard: None = None,
        **options: Unpack[IdempotentOptions],
    ) -> Decorator: ...
    @overload
    def idempotent(
        self,
        keep: Seconds,
        *,
        args: Part | Sequence[Part] | None = None,
        same: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        guard: str,
        **options: Unpack[IdempotentOptions],
    ) -> GuardDecorator: ...
    def idempotent(
        self,
        keep: Seconds,
        *,
        args: Part | Sequence[Part] | None = None,
        same: Part | Sequence[Part] = (),
        name: str | None = None,
        key: Key | None = None,
        on_error: OnError | None = None,
        guard: str | None = None,
        **options: Unpack[IdempotentOptions],
    ) -> Decorator | GuardDecorator:
        """Runs a function once for its key, and gives its result to the calls that repeat it, on all hosts.

        The first call runs. Others wait for it, and get its result, and so do all calls while the result is kept. If it
        raises an error, is cancelled, or its process dies, the next call runs: errors are not kept.

        Results are kept as JSON text: return what `json` can write, such as ``dict``, ``list``, ``str`` and ``int``.
        The call that ran returns what the function has returned, and the others what `json` reads: tuples come back as
        lists. A result that is too large, or has no JSON text, is returned by its call and not kept: the others raise
        ``Conflict``, and nothing runs again.

        Args:
            keep: How long a result is kept, up to 10 years. With 0 only calls get it that waited while it was made.
            args: The parts of the key, as with `lock_on_argument`: what tells requests apart. Required, or ``key``, if
                there are parameters; ``()`` gives all calls one result.
            same: Parts that calls with one key must have in common, in this order, or they raise ``Conflict``.
            name: Takes the place of module and function in the key.
            key: A function of the same arguments that returns the part, or a tuple of parts, in place of ``args``.
            on_error: A function of the error, whose result is returned instead, and not kept. ``Misused`` is raised all
                the same.
            guard: The parameter that gets the ``Guard`` of the run. Callers do not pass it.
            **options: See `IdempotentOptions`.

        Raises:
            Misused: The function cannot be decorated, or no run has such an option.
        """
        if callable(keep):
            raise Misused(f"{describe(keep)}: write the decorator with brackets and a time, @..idempotent('24h')")
        native, asked = self._native, idempotent_options(options)
        is_keyed = args is not None or key is not None
        parts, shared = _parts(() if args is None else args), _parts(same, "same")
        target = Target(native, parts, name, key, guard, on_error, same=shared, is_keyed=is_keyed)
        _check(lambda: _checker(self._settings).once("checked").keep(keep, **asked).begin())

        def ask(function: _native.Function, read: Parts) -> Ask:
            def one(given: tuple[Any, ...], kwargs: dict[str, Any]) -> _native.Call[Any]:
                made = read.key(native, function, read.read(given, kwargs), "once")
                shared = read.same.read(given, kwargs)

                def kept() -> _native.OnceKeep:
                    return native.once(made).keep(keep, same=shared or None, **asked)

                record = read.same.make(native, function, shared, kept)
                return record.begin(function=function, inside=holds_around())

            return one

        return _Holding(target, ask, KeepingRun, None, {})


class _Holding:
    """The decorator of a function that holds something."""

    def __init__(
        self,
        target: Target,
        ask: Callable[[_native.Function, Parts], Ask],
        kind: type[Guard] | type[Guards],
        on_lost: OnLost | None,
        options: HoldOptions,
    ) -> None:
        if on_lost not in (None, "cancel", "error", "continue"):
            raise Misused(f'on_lost={on_lost!r}: it is "cancel", "error" or "continue"')
        self._target, self._ask, self._kind = target, ask, kind
        self._on_lost: OnLost | None = on_lost
        # A hold that outlasts its body keeps nobody inside the body waiting for the body.
        self._outlasts = options.get("release") == "on_expiry"

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        if self._on_lost == "cancel" and not is_async(function):
            raise Misused(f'{describe(function)}: on_lost="cancel" needs an `async def`: nothing else can be cancelled')
        return decorate_hold(self._target, function, self._ask, self._guard, self._outlasts)

    def _guard(self, hold: Any) -> Guard | Guards:
        return self._kind(hold, self._on_lost, self._outlasts)

    def __repr__(self) -> str:
        return "<locker.GuardDecorator>" if self._target.guard else "<locker.Decorator>"


class _Leading:
    """The decorator of a function that the leader runs."""

    def __init__(self, target: Target, election: _native.Election) -> None:
        self._target, self._election = target, election

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        return decorate_leader(self._target, function, self._election)

    def __repr__(self) -> str:
        return "<locker.GuardDecorator>" if self._target.guard else "<locker.Decorator>"


class _Limiting:
    """The decorator of a function that a rate limit admits."""

    def __init__(self, target: Target, ask: Callable[[_native.Function, Parts], Ask]) -> None:
        self._target, self._ask = target, ask

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        return decorate_limit(self._target, function, self._ask)

    def __repr__(self) -> str:
        return "<locker.Decorator>"


def _parts(parts: Part | Sequence[Part], option: str = "args") -> tuple[Part, ...]:
    if isinstance(parts, (int, str)):
        return (parts,)
    try:
        return tuple(parts)
    except TypeError:
        raise Misused(f"{option}={parts!r}: give a position, a name or a path, or several of them as a tuple") from None


def _each(each: Any, parts: Sequence[Part], key: Key | None) -> tuple[Part, ...]:
    if parts or key is not None:
        raise Misused("each= takes the place of the parts and of key=")
    if isinstance(each, str) or not isinstance(each, Iterable):
        raise Misused(f"each={each!r}: give several parts, as in each=('payer', 'payee')")
    if not (several := tuple(each)):
        raise Misused("each=() names no lock: give at least one part")
    return several


def _kind_of_hold(native: _native.Locker, mode: Mode | None, several: bool) -> Callable[..., _native.Call[Any]]:
    if mode not in (None, "read", "write"):
        raise Misused(f'mode={mode!r}: it is "read" or "write"')
    if several:
        return lambda keys, **options: native.lock_all(keys, mode=mode, **options)
    return {None: native.lock, "read": native.read_lock, "write": native.write_lock}[mode]


_INSTEAD: Final = {
    "lease": ": the lease is expr, before the parts of the key",
    "args": ": the parts of the key are positional, after the lease, as in lock_on_argument(10, 'card')",
}


def _hold_options(decorator: str, expr: Seconds | None, options: HoldOptions) -> dict[str, Any]:
    """Returns what the store is asked for, without what is not given."""
    if callable(expr):
        raise Misused(f"{describe(expr)}: write the decorator with brackets, @..{decorator}()")
    asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    unknown = asked.keys() - HoldOptions.__optional_keys__
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}{_INSTEAD.get(min(unknown), '')}")
    check_on_expiry(asked)
    if expr is not None:
        asked["lease"] = expr
    return asked


def _checker(settings: Settings) -> _native.Locker:
    """Returns a locker with these defaults of a call, and with a store that nobody else has."""
    of_calls = WaitOptions.__optional_keys__ | {"lease"}
    defaults: dict[str, Any] = {name: value for name, value in settings.items() if name in of_calls}
    return _native.Locker("memory://", **defaults)


def _check(call: Callable[[], _native.Call[Any]], expr: Seconds | None = None) -> None:
    """Refuses options that no call could have. Asks no store: the call is not waited for.

    Args:
        call: Makes a call with the options.
        expr: The lease, if it was given.
    """
    try:
        call().close()
    except Misused as error:
        if expr is None or "lease" not in str(error):
            raise
        raise Misused(f"{error} (the lease is expr, which precedes the parts of the key)") from None
