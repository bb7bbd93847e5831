"""Mistakes in a decorator fail when the function is decorated, with an error that names the option and the rule."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from locker import Guard, Locker, LockerError, Misused

LOCKER = Locker("memory://")


def f(a: Any, b: int = 2, *args: Any, c: Any = None, d: int = 4, **more: Any) -> str:
    return "ran"


async def later(error: LockerError) -> int:
    return 1


LOCK: list[tuple[dict[str, Any], str]] = [
    ({"max_hold": 5}, "max_hold 5s is shorter than the lease 10s"),
    ({"max_hold": 50, "renew": False}, "max_hold has no effect if renew is false"),
    ({"release": "on_expiry", "max_hold": 20}, 'max_hold has no effect with release="on_expiry"'),
    ({"release": "on_expiry", "renew": True}, 'renew has no effect with release="on_expiry"'),
    ({"each": ()}, "each=() names no lock"),
    ({"each": "ab"}, "each='ab': give several parts"),
    ({"each": 1}, "each=1: give several parts"),
    ({"each": ("a",), "key": lambda *_, **__: 1}, "each= takes the place of the parts and of key="),
    ({"key": 5}, "f(): key=5 is no function"),
    ({"key": "a"}, "f(): key='a' is no function"),
    ({"key": later}, "f(): key= must be a plain function"),
    ({"key": lambda zzz: 1}, "f(): key= must take the arguments of f(a"),
    ({"on_error": 5}, "f(): on_error=5 is no function of the error"),
    ({"on_error": lambda: 1}, "f(): on_error= must take one argument, the error: too many positional arguments"),
    ({"on_error": later}, "f(): on_error= must be a plain function"),
    ({"name": ""}, "name='': give at least one character"),
    ({"name": 5}, "name=5: give a text"),
    ({"name": b"x"}, "name=b'x': give a text"),
    ({"name": "\ud800"}, r"name='\ud800': it has lone surrogates"),
    ({"expr": math.inf}, "lease=inf is too long: give at most 10 years (the lease is expr"),
    ({"expr": 1e30}, "lease=1e+30 is too long: give at most 10 years"),
    ({"expr": 10**400}, "lease is too long: give at most 10 years"),
    ({"expr": "card"}, "lease='card': give seconds"),
    ({"expr": 0}, "the lease is expr, which precedes the parts of the key"),
    ({"timeout": 1e30}, "timeout=1e+30 is too long: give at most 10 years, or math.inf to wait for ever"),
    ({"timeout": 10**400}, "timeout is too long"),
    ({"timeout": -(10**400)}, "and nothing negative"),
]


@pytest.mark.parametrize(("options", "message"), LOCK, ids=lambda value: str(value)[:40])
def test_wrong_option_of_a_lock_fails_at_decoration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Misused, match=re.escape(message)):
        LOCKER.lock_on_argument(**{"expr": 10, **options})(f)


RATE: list[tuple[dict[str, Any], str]] = [
    ({"per": 0}, "per=0 is too short: give at least 1µs"),
    ({"per": -1}, "per=-1: give seconds"),
    ({"per": math.inf}, "per=inf is too long: give at most 10 years"),
    ({"per": 10**400}, "per is too long"),
    ({"per": "5/min"}, "per='5/min': give seconds"),
    ({"burst": 4}, "burst belongs to gcra"),
    ({"burst": 0, "algorithm": "gcra"}, "burst 0 is out of range"),
    ({"burst": 1.5, "algorithm": "gcra"}, "burst=1.5: give a number"),
    ({"size": 2**60}, "size 1152921504606846976 is too large"),
    ({"size": 2**70}, "size=1180591620717411303424: give a number from 0"),
    ({"size": 1.5}, "size=1.5: give a number from 0"),
    ({"size": True}, "size=True: give a number from 0"),
    ({"timeout": -1}, "timeout=-1: give seconds"),
    ({"args": None}, "args=None: give a position, a name or a path"),
    ({"key": 5}, "f(): key=5 is no function"),
    ({"on_error": later}, "f(): on_error= must be a plain function"),
]


@pytest.mark.parametrize(("options", "message"), RATE, ids=lambda value: str(value)[:40])
def test_wrong_option_of_a_limit_fails_at_decoration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Misused, match=re.escape(message)):
        LOCKER.rate_limit(**{"size": 1, "per": 1, **options})(f)


def test_wrong_size_of_a_limit_on_concurrency_fails_at_decoration() -> None:
    for size in (1.5, "3", -1, None):
        with pytest.raises(Misused, match=re.escape(f"size={size!r}: give a number from 0")):
            LOCKER.limit_concurrency(size)(f)  # type: ignore[call-overload]
    with pytest.raises(Misused, match=re.escape("f(): write the decorator with brackets and a size")):
        LOCKER.limit_concurrency(f)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'per'"):
        LOCKER.rate_limit(f)  # type: ignore[call-arg, arg-type]


def test_defaults_of_the_locker_count() -> None:
    locker = Locker("memory://", max_hold=15)
    locker.lock_on_argument(10)(f)
    with pytest.raises(Misused, match="max_hold 15s is shorter than the lease 20s"):
        locker.lock_on_argument(20)(f)
    locker.lock_on_argument(10, release="on_expiry")(f)


def test_lease_and_args_of_a_lock_are_positional() -> None:
    with pytest.raises(TypeError, match="there is no option 'lease': the lease is expr"):
        LOCKER.lock_on_argument(lease=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="there is no option 'args': the parts of the key are positional"):
        LOCKER.lock_on_argument(10, args=("a",))  # type: ignore[call-overload]


@pytest.mark.parametrize("part", ["class", "a.class", "a b", "a.", ""])
def test_part_that_is_no_path_is_refused(part: str) -> None:
    with pytest.raises(Misused, match="neither a parameter's name nor a path"):
        LOCKER.lock_on_argument(10, part)(f)


def test_guard_is_no_part() -> None:
    for part in ("c", "c.fence"):
        with pytest.raises(Misused, match=re.escape("f(): 'c' is the guard, which is no part of a key")):
            LOCKER.lock_on_argument(10, part, guard="c")(f)


def test_lambda_without_a_name_is_refused() -> None:
    with pytest.raises(Misused, match="it has no name of its own: give one with name=.."):
        LOCKER.lock_on_argument(10)(lambda: 1)
    assert LOCKER.lock_on_argument(10, name="one")(lambda: 1)() == 1


def test_guard_that_a_caller_passes_is_refused_before_anything_is_held(name: str) -> None:
    @LOCKER.lock_on_argument(10, name=name, guard="lease", timeout=0)
    def hold(*, lease: Any) -> str:
        return str(lease.key)

    for _ in range(2):
        with pytest.raises(TypeError, match="'lease', which its decorator fills in"):
            hold(lease=None)
    hold()


def test_decoration_opens_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKER_URL", "nothing://")
    locker = Locker()
    decorators: list[Callable[[Any], Any]] = [
        locker.lock_on_argument(10),
        locker.lock_on_argument(10, each=("a",)),
        locker.limit_concurrency(1),
        locker.rate_limit(1, per=1),
    ]
    assert repr(decorators[0]) == "<locker.Decorator>"
    wrapped = [decorator(f) for decorator in decorators]
    with pytest.raises(Misused, match="nothing"):
        wrapped[0](1)


class Order:
    id = 7


def test_refused_value_names_function_and_parameter() -> None:
    @LOCKER.lock_on_argument(10, "amount", "order", name="order.ship")
    def ship(order: object, amount: int = 1) -> None: ...

    place = ship.__qualname__
    with pytest.raises(Misused, match=re.escape(f"{place}(): the parameter 'order': a value of type Order")) as raised:
        ship(Order())
    assert raised.value.function == "order.ship"
    with pytest.raises(Misused, match="the parameter 'order': a value of type set"):
        LOCKER.lock_on_argument(10, 0)(ship)({1, 2})
    with pytest.raises(Misused, match="item 1 of what key= has returned: a value of type Order"):
        LOCKER.lock_on_argument(10, key=lambda order, amount: (amount, order))(ship)(Order())
    with pytest.raises(Misused, match="the parameter 'order': a value of type Order"):
        LOCKER.lock_on_argument(10, each=("amount", "order"))(ship)(Order())
    with pytest.raises(Misused, match="the argument at position 2: a value of type Order"):
        LOCKER.rate_limit(1, per=1, args=2)(f)(1, 2, Order())


def test_position_0_of_a_method_is_self() -> None:
    class Account:
        @LOCKER.lock_on_argument(10, 0)
        def close(self) -> None: ...

    with pytest.raises(Misused, match=r"the parameter 'self' \(position 0; give a field of it, such as 'self.id'"):
        Account().close()


def test_key_is_called_with_the_arguments_as_the_signature_binds_them() -> None:
    @LOCKER.lock_on_argument(10, key=lambda o: o.id, guard="lease")
    def ship(order: Order, *, lease: Guard) -> str:
        return lease.key

    assert ship(Order()) == ship(order=Order())

    @LOCKER.lock_on_argument(10, key=lambda a, b, *, to: (a, b, to), guard="lease")
    def send(a: int, b: int = 2, *, to: str = "home", lease: Guard) -> str:
        return lease.key

    assert send(1) == send(1, 2) == send(b=2, a=1, to="home")
    assert send(1) != send(1, to="shop")
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        send()
