"""Keys: those of Rust's attributes, and those of the article's class."""

from __future__ import annotations

import re
import uuid
import warnings
from decimal import Decimal
from enum import Enum, IntEnum
from hashlib import md5
from typing import Any

import pytest
import redis_locker
import servers

from locker import Locker, Misused, RedisLocker


class Color(Enum):
    RED = 1


class Size(IntEnum):
    BIG = 2


class Money:
    def __str__(self) -> str:
        return "3 EUR"


def digest(text: str) -> str:
    return md5(text.encode()).hexdigest()


def key_of(locker: Locker, *parts: object) -> str:
    with locker.lock_on("bank.withdraw", *parts) as guard:
        return guard.key


# The text of each value in the format of Rust, and in that of the article's class.
VECTORS: list[tuple[Any, str, str]] = [
    ("visa", "visa", "visa"),
    ("größe", "größe", "größe"),
    ("a:b", r"a\:b", "a:b"),
    ("c\\", "c\\\\", "c\\"),
    ("", "", ""),
    (6222, "6222", "6222"),
    (-1, "-1", "-1"),
    (2**200, str(2**200), str(2**200)),
    (True, "true", "True"),
    (False, "false", "False"),
    (1.0, "1", "1.0"),
    (0.1, "0.1", "0.1"),
    (-0.0, "-0", "-0.0"),
    (1e-5, "0.00001", "1e-05"),
    (1e16, "10000000000000000", "1e+16"),
    (float("nan"), "NaN", "nan"),
    (float("inf"), "inf", "inf"),
    (None, "None", "None"),
    (b"x", "b'x'", "b'x'"),
    (Decimal("1.10"), "1.10", "1.10"),
    (uuid.UUID(int=7), str(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
    (Color.RED, "Color.RED", "Color.RED"),
    (Size.BIG, "2", "2"),
    ([1, "a"], "[1, 'a']", "[1, 'a']"),
    ((1, 2), "(1, 2)", "(1, 2)"),
    (Money(), "3 EUR", "3 EUR"),
]


@pytest.mark.parametrize(("value", "escaped", "python"), VECTORS, ids=lambda value: str(value)[:20])
def test_value_is_written_as_rust_and_as_the_article_write_it(value: Any, escaped: str, python: str) -> None:
    function = digest("bank:withdraw")
    assert key_of(Locker("memory://"), value) == f"{function}:lock|{digest(escaped)}"
    assert key_of(Locker("memory://", key_format="python"), value) == f"{function}:lock|{digest(python)}"
    assert python == str(value)


def test_keys_are_those_of_the_documentation() -> None:
    assert key_of(Locker("memory://"), 6222, 100) == (
        "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1"
    )
    assert key_of(Locker("memory://"), "a:b", "c") != key_of(Locker("memory://"), "a", "b:c")
    assert key_of(Locker("memory://", prefix="app/")).startswith("app/e7d1e70120eddf339445617f6b481243:lock|")


@pytest.mark.parametrize("arguments", [(), ("visa", 30), ("a:b", True, 1.5, None, b"x")])
def test_keys_are_those_of_the_article(redis: servers.Redis, arguments: tuple[object, ...]) -> None:
    def withdraw(*arguments: object, lease: Any) -> str:
        return str(lease.key)

    locked = RedisLocker(redis.url).lock_on_argument(10, *range(len(arguments)), guard="lease")(withdraw)
    assert locked(*arguments) == redis_locker.key_of(withdraw, *arguments)


def test_key_has_module_and_qualified_name_or_the_name_given() -> None:
    locker = Locker("memory://")

    class Account:
        @locker.lock_on_argument(10, guard="lease")
        def close(self, *, lease: Any) -> str:
            return str(lease.key)

        @locker.lock_on_argument(10, name="bank.close", guard="lease")
        def named(self, *, lease: Any) -> str:
            return str(lease.key)

    path = f"{__name__}.{Account.close.__qualname__}".replace(".", ":")
    assert Account().close() == f"{digest(path)}:lock|{digest('')}"
    assert Account().named() == f"{digest('bank:close')}:lock|{digest('')}"


class Plain:
    pass


class Shows:
    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"Shows({self.inner!r})"


@pytest.mark.parametrize(
    "value",
    [Plain(), object(), [Plain()], Shows(Plain()), {1, 2}, frozenset({"a"}), (lambda: 1), iter([1])],
    ids=repr,
)
@pytest.mark.parametrize("key_format", ["escaped", "python"])
def test_value_that_differs_from_process_to_process_is_refused_with_its_type(value: Any, key_format: Any) -> None:
    @Locker("memory://", key_format=key_format).lock_on_argument(10, "order")
    def ship(order: object) -> None:
        raise AssertionError

    with pytest.raises(Misused, match=re.escape(type(value).__name__)):
        ship(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([{"a"}], "set at [0]"),
        ((1, [2, frozenset("b")]), "frozenset at [1][1]"),
        ({"k": {"a"}}, "set at ['k']"),
        ({frozenset("a"): 1}, "frozenset at [a key]"),
        ([{}, {1: [{"x": {2}}]}], "set at [1][1][0]['x']"),
    ],
)
@pytest.mark.parametrize("key_format", ["escaped", "python"])
def test_set_inside_of_a_value_is_refused_with_its_place(value: Any, place: str, key_format: Any) -> None:
    message = f"a value of type {place} cannot be part of a key: the order of a set"
    with pytest.raises(Misused, match=re.escape(message)):
        key_of(Locker("memory://", key_format=key_format), value)


def test_value_without_an_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Misused, match="it is nested too deep"):
        key_of(Locker("memory://"), value)
    assert key_of(Locker("memory://"), [(1, [])]).endswith(digest("[(1, [])]"))


def test_key_function_replaces_the_parts() -> None:
    locker = Locker("memory://")

    def key_of_order(order: dict[str, Any], *, to: str = "home") -> tuple[object, ...]:
        return order["id"], to

    @locker.lock_on_argument(10, name="ship", key=key_of_order, guard="lease")
    def ship(order: dict[str, Any], *, to: str = "home", lease: Any) -> str:
        return str(lease.key)

    @locker.lock_on_argument(10, name="ship", key=lambda order: order["id"], guard="lease")
    def pack(order: dict[str, Any], *, lease: Any) -> str:
        return str(lease.key)

    assert ship({"id": 7}) == f"{digest('ship')}:lock|{digest('7:home')}"
    assert ship({"id": 7}, to="shop") == f"{digest('ship')}:lock|{digest('7:shop')}"
    assert pack({"id": 7}) == f"{digest('ship')}:lock|{digest('7')}"
    with pytest.raises(Misused, match="key= takes the place of the parts"):
        locker.lock_on_argument(10, 0, key=key_of_order)(ship)


def test_function_of_main_on_a_shared_store_warns_once(redis: servers.Redis) -> None:
    def withdraw() -> None: ...

    withdraw.__module__ = "__main__"
    shared = Locker(redis.url)
    with pytest.warns(UserWarning, match="give the function a name, as in name='shop.") as warned:
        locked = shared.lock_on_argument(10)(withdraw)
        locked()
        locked()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared.lock_on_argument(10, name="bank.withdraw")(withdraw)()
        Locker("memory://").lock_on_argument(10)(withdraw)()
