"""Which of a call's arguments are parts of the key: found out when a function is decorated, read at each call."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeVar

from . import _native
from ._errors import Misused

Part: TypeAlias = int | str
"""A position (from 0, ``self`` counts), the name of a parameter, or a path from one, such as ``"order.id"``."""

T = TypeVar("T")

_Read: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], Sequence[object]]
_Get: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], object]


class Parts:
    """The parts of the key of a function.

    Attributes:
        read: Reads them from the arguments of a call.
        same: What calls with one key must have in common, which is no part of it. Decorators set it.
    """

    __slots__ = ("_function", "_sources", "read", "same")

    same: Parts

    def __init__(self, function: str, read: _Read, sources: Callable[[int], str]) -> None:
        self._function = function
        self._sources = sources
        self.read = read

    def key(
        self,
        native: _native.Locker,
        function: _native.Function,
        values: Sequence[object],
        part: Literal["lock", "semaphore", "rate", "once"],
    ) -> _native.Key:
        """Makes the key of a call from the values of its parts, see `make`."""
        return self.make(native, function, values, lambda: native.function_key(function, values, part))

    def keys(self, native: _native.Locker, function: _native.Function, values: Sequence[object]) -> list[_native.Key]:
        """Makes one key of each value, see `make`."""
        return self.make(
            native, function, values, lambda: [native.function_key(function, (value,)) for value in values]
        )

    def make(
        self,
        native: _native.Locker,
        function: _native.Function,
        values: Sequence[object],
        make: Callable[[], T],
    ) -> T:
        """Makes something from the values of these parts.

        Raises:
            Misused: A value cannot be part of a key. The error names the function and the parameter.
        """
        try:
            return make()
        except Misused as error:
            raise self._explained(error, native, function, values) from None

    def _explained(
        self, error: Misused, native: _native.Locker, function: _native.Function, values: Sequence[object]
    ) -> Misused:
        for index, value in enumerate(values):
            try:
                _native.part_text(value, native.key_format)
            except Misused as refused:
                return Misused(f"{self._function}: {self._sources(index)}: {refused}", function=function.path)
        return error


def is_async(function: Callable[..., object]) -> bool:
    """Tells whether a call of the function has to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def check_function(function: object) -> None:
    """Refuses what has no body that could run under a hold.

    Raises:
        Misused: It is a generator function, a class or the like.
    """
    cure = None
    if inspect.isclass(function):
        cure = "a class cannot be locked: decorate its methods, or a function that makes it"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        cure = "a generator runs after its call has returned: collect the items in a function"
    elif isinstance(function, (staticmethod, classmethod, property)):
        cure = "put @staticmethod, @classmethod and @property above this decorator"
    elif not callable(function):
        cure = "it is no function"
    if cure is not None:
        raise Misused(f"{describe(function)}: {cure}")


def describe(function: object) -> str:
    """Returns what messages call a function."""
    name = getattr(function, "__qualname__", None)
    return f"{name}()" if isinstance(name, str) and not inspect.isclass(function) else repr(function)


def takes(function: Callable[..., object], *args: object, **kwargs: object) -> str | None:
    """Returns why a function cannot be called in this way; ``None`` if it can, or does not say what it takes."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return None
    except TypeError as error:
        return str(error)
    return None


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        # A built-in function that does not say what it takes.
        take = inspect.Parameter
        return inspect.Signature([take("args", take.VAR_POSITIONAL), take("kwargs", take.VAR_KEYWORD)])


class Binding:
    """The arguments of a function, of which some are parts of a key.

    Args:
        function: The function.
        guard: The parameter that the decorator fills in, if there is one. Callers do not pass it.
    """

    def __init__(self, function: Callable[..., object], guard: str | None = None) -> None:
        self.function = describe(function)
        self._guard = guard
        whole = _signature(function)
        self.signature = whole if guard is None else whole.replace(parameters=self._others(whole, guard))
        parameters = self.signature.parameters.values()
        self._positional = [
            one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        self._kinds = {one.kind for one in parameters}

    def _others(self, signature: inspect.Signature, guard: str) -> list[inspect.Parameter]:
        found = signature.parameters.get(guard)
        if found is None:
            raise Misused(f"{self.function}: guard={guard!r}: there is no such parameter")
        names = list(signature.parameters)
        after = [signature.parameters[name] for name in names[names.index(guard) + 1 :]]
        by_position = any(one.kind in (one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL) for one in after)
        is_last = found.kind is found.POSITIONAL_OR_KEYWORD and not by_position
        if found.kind is not found.KEYWORD_ONLY and not is_last:
            raise Misused(f"{self.function}: guard={guard!r}: make it the last parameter, or a keyword-only one")
        return [one for name, one in signature.parameters.items() if name != guard]

    @property
    def has_parameters(self) -> bool:
        """Whether callers pass anything."""
        return bool(self._kinds)

    def parts(self, parts: Sequence[Part]) -> Parts:
        """Returns what reads these parts from the arguments of a call.

        Raises:
            Misused: No call can have such a part.
        """
        read = self._reading([self._getter(part) for part in parts])
        return Parts(self.function, read, lambda at: self._source(parts[at]))

    def parts_of(self, key: Callable[..., object]) -> Parts:
        """Returns what makes the parts by calling ``key`` with the arguments, as the signature binds them.

        Raises:
            Misused: It cannot be called with them.
        """
        if not callable(key):
            raise Misused(f"{self.function}: key={key!r} is no function: give the names of parameters as parts instead")
        if is_async(key):
            raise Misused(f"{self.function}: key= must be a plain function: nobody would await an `async def`")
        by_name = [one.name for one in self.signature.parameters.values() if one.kind is one.KEYWORD_ONLY]
        why = takes(key, *self._positional, **dict.fromkeys(by_name))
        if why is not None:
            raise Misused(f"{self.function}: key= must take the arguments of {self._spelled()}: {why}")

        def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[object]:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            made = key(*bound.args, **bound.kwargs)
            return made if isinstance(made, (tuple, list)) else (made,)

        return Parts(self.function, read, lambda at: f"item {at} of what key= has returned")

    def _reading(self, getters: list[_Get]) -> _Read:
        if not getters:
            return lambda _args, _kwargs: ()
        if len(getters) == 1:
            (only,) = getters
            return lambda args, kwargs: (only(args, kwargs),)
        return lambda args, kwargs: [get(args, kwargs) for get in getters]

    def _source(self, part: Part) -> str:
        """Returns where a part comes from, for messages."""
        if isinstance(part, str) and "." in part:
            return part
        if isinstance(part, int) and not -len(self._positional) <= part < len(self._positional):
            return f"the argument at position {part}"
        name = part if isinstance(part, str) else self._positional[part].name
        if name in ("self", "cls") and self._positional and self._positional[0].name == name:
            return f"the parameter {name!r} (position 0; give a field of it, such as '{name}.id', or what follows it)"
        return f"the parameter {name!r}"

    def _getter(self, part: Part) -> _Get:
        if isinstance(part, bool) or not isinstance(part, (int, str)):
            raise Misused(f"{self.function}: {part!r} is no part of a key: give a position, a name or a path")
        return self._at(part) if isinstance(part, int) else self._along(part)

    def _at(self, position: int) -> _Get:
        if position < 0:
            position = self._from_the_end(position)
        if position < len(self._positional):
            return self._of(self._positional[position], position)
        if inspect.Parameter.VAR_POSITIONAL not in self._kinds:
            raise Misused(
                f"{self.function}: there is no parameter at position {position} (from 0) in {self._spelled()}"
            )

        def get(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> object:
            if position >= len(args):
                raise TypeError(f"{self.function}: no argument at position {position}, which is part of the key")
            return args[position]

        return get

    def _from_the_end(self, position: int) -> int:
        """The article's code counts from the last argument of a call: that is one parameter only if all are passed."""
        all_are_passed = self._kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        all_are_passed &= all(one.default is one.empty for one in self._positional)
        if not all_are_passed or -position > len(self._positional):
            raise Misused(
                f"{self.function}: position {position} is not the same parameter in every call of {self._spelled()}: "
                "give the parameter's name"
            )
        return len(self._positional) + position

    def _along(self, path: str) -> _Get:
        name, *attributes = path.split(".")
        if not all(each.isidentifier() and not keyword.iskeyword(each) for each in (name, *attributes)):
            raise Misused(f"{self.function}: {path!r} is neither a parameter's name nor a path: use key=lambda ..")
        get = self._named(name)
        if not attributes:
            return get
        follow = attrgetter(".".join(attributes))
        return lambda args, kwargs: follow(get(args, kwargs))

    def _named(self, name: str) -> _Get:
        if name == self._guard:
            raise Misused(f"{self.function}: {name!r} is the guard, which is no part of a key: callers do not pass it")
        parameter = self.signature.parameters.get(name)
        if parameter is None:
            if inspect.Parameter.VAR_KEYWORD not in self._kinds:
                raise Misused(f"{self.function}: there is no parameter {name!r} in {self._spelled()}")
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Misused(f"{self.function}: {parameter} is no single argument: give a position, or key=lambda ..")
        position = self._positional.index(parameter) if parameter in self._positional else None
        return self._of(parameter, position)

    def _of(self, parameter: inspect.Parameter, position: int | None) -> _Get:
        at = float("inf") if position is None else position
        name, default, by_name = parameter.name, parameter.default, parameter.kind is not parameter.POSITIONAL_ONLY

        def get(args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
            if position is not None and len(args) > at:
                return args[position]
            if by_name and name in kwargs:
                return kwargs[name]
            if default is not parameter.empty:
                return default
            self.signature.bind(*args, **kwargs)
            raise TypeError(f"{self.function}: no argument {name!r}, which is part of the key")

        return get

    def _spelled(self) -> str:
        return f"{self.function.removesuffix('()')}{self.signature}"
