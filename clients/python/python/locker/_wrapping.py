"""The decorators: a function that runs only under a hold, or only if a limit admits it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import inspect
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from . import _native
from ._binding import Binding, Part, Parts, check_function, describe, is_async, takes
from ._election import check_leader, lead
from ._errors import Conflict, LockerError, Lost, Misused
from ._guards import Guard, Guards
from ._results import read
from ._waiting import wait, wait_blocking

P = ParamSpec("P")
R = TypeVar("R")
S_co = TypeVar("S_co", covariant=True)

OnError: TypeAlias = Callable[[LockerError], Any]
"""Makes what a call returns instead of raising an error, except for `Misused`. In coroutines it may be async."""

Ask: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], _native.Call[Any]]
"""Makes the request of a call from its arguments."""

_LAZY: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)
"""What has not begun when a call returns it."""

_COLLECT: Final = "collect the items in it, and return a list"
_CURES: Final[tuple[tuple[type, str], ...]] = (
    (Generator, _COLLECT),
    (AsyncGenerator, _COLLECT),
    (getattr(contextlib, "_GeneratorContextManagerBase", GeneratorType), "take the lock by hand inside of it"),
    (concurrent.futures.Future, "return its result() instead"),
    (Awaitable, "make it `async def`, and await this inside of it"),
)
"""What may run after a call that returns it, and what to do instead."""
DEFERRED: Final = tuple(kind for kind, _ in _CURES)
"""The types that a call may not return whose body ends with it."""
_PLAIN: Final = frozenset((type(None), bool, int, float, str, bytes, list, tuple, dict))
"""The types of most results, which need no closer look."""


class Decorator(Protocol):
    """Keeps the signature of what it decorates."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorates the function."""
        ...


class OnceDecorator(Protocol[S_co]):
    """Keeps the signature of what it decorates, but for what a skipped call returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | S_co]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | S_co]: ...
    def __call__(self, function: Callable[P, Any], /) -> Callable[P, Any]:
        """Decorates the function."""
        ...


class OnceGuardDecorator(Protocol[S_co]):
    """An `OnceDecorator` that takes a parameter away, which it fills in: type checkers cannot say which one."""

    @overload
    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, R]], /
    ) -> Callable[..., Coroutine[Any, Any, R | S_co]]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Callable[..., R | S_co]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Decorates the function."""
        ...


class GuardDecorator(Protocol):
    """Takes a parameter away, which the decorator fills in: type checkers cannot say which one."""

    def __call__(self, function: Callable[..., R], /) -> Callable[..., R]:
        """Decorates the function."""
        ...


@dataclass(frozen=True)
class Target:
    """What all decorators need to know about a call.

    Attributes:
        native: The store and its defaults.
        parts: The parts of the key.
        name: The name in the key, or ``None`` for module and function.
        key: Makes the parts from the arguments, in place of ``parts``.
        guard: The parameter that gets the guard.
        on_error: Makes the result of a call that fails.
        on_skip: Makes the result of a call that is skipped.
        same: The parts that calls with one key must have in common.
        is_keyed: Whether it was said what tells calls apart, which matters to results.
    """

    native: _native.Locker
    parts: Sequence[Part]
    name: str | None = None
    key: Callable[..., object] | None = None
    guard: str | None = None
    on_error: OnError | None = None
    on_skip: Callable[[], Any] | None = None
    same: Sequence[Part] = ()
    is_keyed: bool = True

    def skip(self) -> Any:
        """Returns what a call returns that is skipped."""
        return None if self.on_skip is None else self.on_skip()

    def repeat(self, done: _native.Done) -> Any:
        """Returns the result of another run, or what the call returns if that was not kept or cannot be read."""
        try:
            return read(done)
        except Conflict as error:
            return self.refuse(error)

    def refuse(self, error: LockerError) -> Any:
        """Returns what a call returns that was not admitted, or that lost its hold. A mistake is always raised."""
        if self.on_error is None or isinstance(error, Misused):
            raise error
        return self.on_error(error)

    def function(self, function: Callable[..., object]) -> _native.Function:
        """Returns what the key says of this function."""
        path = self._path(function) if self.name is None else self.name
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            return _native.Function(path)
        return _native.Function(path, code.co_filename, code.co_firstlineno)

    def read_parts(self, function: Callable[..., object]) -> Parts:
        """Returns what reads the parts from the arguments of a call."""
        binding = Binding(function, self.guard)
        if self.key is None:
            parts = binding.parts(self.parts)
        elif self.parts:
            raise Misused(f"{describe(function)}: key= takes the place of the parts {list(self.parts)}")
        else:
            parts = binding.parts_of(self.key)
        parts.same = binding.parts(self.same)
        return parts

    def check(self, function: Callable[..., object]) -> None:
        """Refuses what cannot be decorated, and an ``on_error`` or ``on_skip`` that cannot make a result of it.

        Raises:
            Misused: It names the function and the rule.
        """
        check_function(function)
        if not self.is_keyed and Binding(function, self.guard).has_parameters:
            rule = "`idempotent` without `args` gives all calls one result: name what tells requests apart, or give `args=()`"
            raise Misused(f"{describe(function)}: {rule}")
        self._check_on_skip(function)
        if self.on_error is None:
            return
        if not callable(self.on_error):
            raise Misused(f"{describe(function)}: on_error={self.on_error!r} is no function of the error")
        why = takes(self.on_error, LockerError())
        if why is not None:
            raise Misused(f"{describe(function)}: on_error= must take one argument, the error: {why}")
        if is_async(self.on_error) and not is_async(function):
            raise Misused(f"{describe(function)}: on_error= must be a plain function, for a `def` does not await it")

    def _check_on_skip(self, function: Callable[..., object]) -> None:
        if self.on_skip is None:
            return
        if not callable(self.on_skip):
            raise Misused(f"{describe(function)}: on_skip={self.on_skip!r} is no function without arguments")
        why = takes(self.on_skip)
        if why is not None:
            raise Misused(f"{describe(function)}: on_skip= must take no arguments: {why}")
        if is_async(self.on_skip):
            raise Misused(f"{describe(function)}: on_skip= must be a plain function: nobody awaits it")

    def _path(self, function: Callable[..., object]) -> str:
        module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(qualified, str) or qualified.endswith("<lambda>"):
            # All lambdas of a module have one name: they would share a lock.
            raise Misused(f"{describe(function)}: it has no name of its own: give one with name=..")
        if self.native.key_format == "python":
            return f"{module}.{getattr(function, '__name__', qualified)}"
        if module in ("__main__", "__mp_main__"):
            module = "__main__"
            self._warn_of_main(qualified)
        return f"{module}.{qualified}"

    def _warn_of_main(self, qualified: str) -> None:
        if self.native.is_shared:
            text = f"the key of {qualified}() contains the module __main__, which is another one when it is imported"
            warnings.warn(f"{text}: give the function a name, as in name='shop.{qualified}'", stacklevel=_depth())


def _depth() -> int:
    """Returns the level of the first frame outside of this package, for a warning of the caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    return level


def decorate_hold(
    target: Target,
    function: Callable[P, R],
    ask: Callable[[_native.Function, Parts], Ask],
    guard: Callable[[Any], Guard | Guards],
    outlasts: bool = False,
) -> Callable[P, R]:
    """Returns the function under a hold.

    Args:
        target: What is locked.
        function: The body.
        ask: Returns what asks for the hold of a call.
        guard: Makes the guard of a hold.
        outlasts: Whether the hold goes on when the call ends, and what the call has begun may go on, too.
    """
    target.check(function)
    acquire = ask(target.function(function), target.read_parts(function))
    parameter = target.guard
    refused = _LAZY if outlasts else DEFERRED

    if is_async(function):
        body = cast("Callable[..., Awaitable[Any]]", function)

        async def locked_async(*args: Any, **kwargs: Any) -> Any:
            if parameter in kwargs:
                raise _given(function, parameter)
            call = acquire(args, kwargs)
            try:
                hold = await wait(call)
            except LockerError as error:
                return await _result(target.refuse(error))
            if hold is None:
                return target.skip()
            if isinstance(hold, _native.Done):
                return await _result(target.repeat(hold))
            held = guard(hold)
            if parameter is not None:
                kwargs[parameter] = held
            try:
                async with held:
                    return held._kept(await body(*args, **kwargs))
            except Lost as loss:
                if loss is not held.raised:
                    raise
                return await _result(target.refuse(loss))

        return _finished(target, function, locked_async)

    def locked(*args: Any, **kwargs: Any) -> Any:
        if parameter in kwargs:
            raise _given(function, parameter)
        call = acquire(args, kwargs)
        try:
            hold = wait_blocking(call)
        except LockerError as error:
            return target.refuse(error)
        if hold is None:
            return target.skip()
        if isinstance(hold, _native.Done):
            return target.repeat(hold)
        held = guard(hold)
        if parameter is not None:
            kwargs[parameter] = held
        try:
            with held:
                return held._kept(returned(function, args, kwargs, refused))
        except Lost as loss:
            if loss is not held.raised:
                raise
            return target.refuse(loss)

    return _finished(target, function, locked)


def decorate_limit(
    target: Target,
    function: Callable[P, R],
    ask: Callable[[_native.Function, Parts], Ask],
) -> Callable[P, R]:
    """Returns the function behind a rate limit. As `decorate_hold`, without a hold."""
    target.check(function)
    admit = ask(target.function(function), target.read_parts(function))

    if is_async(function):
        body = cast("Callable[..., Awaitable[Any]]", function)

        async def limited_async(*args: Any, **kwargs: Any) -> Any:
            call = admit(args, kwargs)
            try:
                await wait(call)
            except LockerError as error:
                return await _result(target.refuse(error))
            return await body(*args, **kwargs)

        return _finished(target, function, limited_async)

    def limited(*args: Any, **kwargs: Any) -> Any:
        call = admit(args, kwargs)
        try:
            wait_blocking(call)
        except LockerError as error:
            return target.refuse(error)
        return returned(function, args, kwargs, _LAZY)

    return _finished(target, function, limited)


def decorate_leader(target: Target, function: Callable[P, R], election: _native.Election) -> Callable[P, R]:
    """Returns the function that one of its callers at a time runs. ``target.parts`` are empty."""
    target.check(function)
    check_leader(function)
    target.read_parts(function)
    named = target.function(function)
    parameter = target.guard
    body = cast("Callable[..., Awaitable[Any]]", function)

    async def refuse(error: LockerError) -> Any:
        return await _result(target.refuse(error))

    async def leading(*args: Any, **kwargs: Any) -> Any:
        if parameter in kwargs:
            raise _given(function, parameter)

        async def term(guard: Guard) -> Any:
            return await body(*args, **kwargs if parameter is None else {**kwargs, parameter: guard})

        return await lead(election, term, refuse, named)

    return _finished(target, function, leading)


def _given(function: Callable[..., object], guard: str) -> TypeError:
    """Makes the error of a call that passes what the decorator fills in."""
    return TypeError(f"{describe(function)} got the argument {guard!r}, which its decorator fills in")


def returned(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], refused: tuple[type, ...]
) -> Any:
    """Calls the function, and refuses a result of these types.

    Raises:
        Misused: It is one of them.
    """
    result = function(*args, **kwargs)
    if type(result) not in _PLAIN and isinstance(result, refused):
        if isinstance(result, (Coroutine, Generator)):
            result.close()
        name = type(result).__name__.replace("_", " ").strip()
        cure = next(cure for kind, cure in _CURES if isinstance(result, kind))
        raise Misused(f"{describe(function)} returned a {name}, whose work may run after the call: {cure}")
    return result


async def _result(made: object) -> object:
    """Returns what `on_error` has made in a coroutine."""
    return await made if isinstance(made, Awaitable) else made


def _finished(target: Target, function: Callable[P, R], wrapper: Callable[..., Any]) -> Callable[P, R]:
    functools.update_wrapper(wrapper, function)
    if target.guard is not None:
        wrapper.__signature__ = Binding(function, target.guard).signature  # type: ignore[attr-defined]
        wrapper.__annotations__ = {
            name: kind for name, kind in wrapper.__annotations__.items() if name != target.guard
        }
    return wrapper
