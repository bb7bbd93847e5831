"""Mistakes in the arguments of a locker and of its methods: the error names the argument and the rule."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import servers

import locker as package
from locker import Limited, Locker, LockerError, Misused, Request, TimedOut
from locker._primitives import HasKey


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda it: it.lock(5), Misused, "name=5: give a text"),
        (lambda it: it.lock(""), Misused, "name='': give at least one character"),
        (lambda it: it.lock("\ud800"), Misused, r"name='\ud800': it has lone surrogates"),
        (lambda it: it.lock_on(5), Misused, "name=5: give a text"),
        (lambda it: it.lock_on(""), Misused, "name='': give at least one character"),
        (lambda it: it.lock_all(["a", ""]), Misused, "name='': give at least one character"),
        (lambda it: it.lock_all(["a"], mode="r"), Misused, "mode='r'"),
        (lambda it: it.semaphore("a", 1.5).acquire(), Misused, "size=1.5: give a number from 0"),
        (lambda it: it.semaphore("a", 1, permits="1").acquire(), Misused, "permits='1': give a number from 0"),
        (lambda it: it.lock("a", leas=3), TypeError, "there is no option 'leas'"),
        (lambda it: it.lock("a", try_once=True), TypeError, "there is no option 'try_once'"),
        (lambda it: it.lock("a", renew=True, release="on_expiry"), Misused, "renew has no effect"),
        (lambda it: it.lock("a", lease=10**400).acquire(), Misused, "lease is too long"),
        (lambda it: it.lock("a", max_hold=1).try_acquire(), Misused, "max_hold 1s is shorter than the lease 10s"),
        (lambda it: it.inspect(5), Misused, "inspect(5): give a key, or what has one"),
        (lambda it: it.inspect(None), Misused, "inspect(None): give a key"),
        (lambda it: it.inspect("invoice"), Misused, "inspect(locker.lock('invoice'))"),
        (lambda it: it.inspect("invoice:7"), Misused, "inspect(locker.lock('invoice:7'))"),
        (lambda it: it.inspect("door-lock:7"), Misused, "this is a name and no key"),
        (lambda it: it.inspect(":7"), Misused, "this is a name and no key"),
        (lambda it: it.inspect("bank:lock|7"), Misused, "this is a name and no key"),
        (lambda it: it.inspect(it.lock_all(["a", "b"])), Misused, "is for several locks"),
        (lambda it: Locker(5), Misused, "url=5: give a text"),  # type: ignore[arg-type]
        (lambda it: Locker("memory://", lease=float("inf")), Misused, "lease=inf is too long: give at most 10 years"),
    ],
)
def test_wrong_argument_is_named(call: Callable[[Any], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(Locker("memory://"))


def test_inspect_takes_what_has_a_key(url: str, name: str) -> None:
    locker = Locker(url, prefix="app/")
    request = locker.lock(name)
    assert (request.key, repr(request)) == (f"app/lock:{name}", f"<locker.Request app/lock:{name}>")
    assert locker.inspect(request) is None
    with request as guard, pytest.raises(TimedOut) as raised:
        for of in (request, guard, guard.key):
            seen = locker.inspect(of)
            assert seen is not None
            assert [holder.fence for holder in seen.holders] == [guard.fence]
        assert asyncio.run(locker.inspect_async(request)) is not None
        locker.lock(name, timeout=0).acquire()
    assert locker.inspect(raised.value.key or "") is None
    with locker.lock_on(name, 7):
        assert locker.inspect(locker.lock_on(name, 7)) is not None
        assert locker.inspect(locker.lock_on(name, 8)) is None
    counter = locker.counter(name)
    counter.add(3)
    seen = locker.inspect(counter)
    assert seen is not None
    assert seen.value == 3


@pytest.mark.parametrize("prefix", ["", "app", "app/", "app:", "a|b\\d"])
@pytest.mark.parametrize("key_format", ["escaped", "python"])
def test_inspect_takes_the_key_of_each_kind(name: str, prefix: str, key_format: Any) -> None:
    locker = Locker("memory://", prefix=prefix, key_format=key_format)
    having: list[HasKey] = [
        locker.lock(name),
        locker.read_lock(name),
        locker.semaphore(name, 2),
        locker.lock_on(name),
        locker.lock_on(name, 7),
        locker.lock("x" * 5000),
        locker.rate_limiter(name, 1, 1),
        locker.event(name),
        locker.watchdog(name),
        locker.barrier(name, 1),
        locker.latch(name, 1),
        locker.counter(name),
    ]
    for one in having:
        assert locker.inspect(one) is None
        assert locker.inspect(one.key) is None
        # Another locker's, on the same store.
        assert Locker("memory://", prefix="other-").inspect(one) is None
    limited = locker.rate_limit(1, per=60, name=name, timeout=0)(lambda: 1)
    limited()
    with pytest.raises(Limited) as raised:
        limited()
    assert raised.value.key is not None
    locker.inspect(raised.value.key)
    with pytest.raises(Misused, match="this is a name"):
        locker.inspect(f"{prefix}invoice:7")


def test_inspect_takes_keys_below_another_prefix(url: str, name: str) -> None:
    with Locker(url, prefix="app/").lock(name) as guard, Locker(url, prefix="app:").lock_on(name) as other:
        for held in (guard, other):
            assert Locker(url).inspect(held.key) is not None
            assert Locker(url, prefix="jobs").inspect(held.key) is not None


def test_keys_of_requests_are_those_of_their_guards(url: str, name: str) -> None:
    locker = Locker(url)
    requests: list[Request[Any]] = [
        locker.lock(name),
        locker.read_lock(name),
        locker.write_lock(name),
        locker.semaphore(name, 2),
        locker.lock_on(name, 1),
    ]
    for request in requests:
        with request as guard:
            assert guard.key == request.key


def test_holder_is_shown_as_in_python(redis: servers.Redis, name: str) -> None:
    locker = Locker(redis.url, note="vm:1")
    with locker.lock(name) as guard:

        def shown() -> str:
            seen = locker.inspect(guard)
            assert seen is not None
            return repr(seen.holders[0])

        # The note is told in the background.
        servers.eventually(lambda: "note" in shown())
        assert shown() == f'<Holder fence={guard.fence} note="vm:1">'


def test_messages_have_no_words_of_rust(name: str) -> None:
    locker = Locker("memory://")
    with locker.lock(name), pytest.raises(Misused, match="into a function that does not lock") as raised:
        locker.lock(name).acquire()
    assert str(raised.value).startswith(f"lock:{name}: the function around this call holds it")
    with pytest.raises(Misused, match="^lease 0s is too short"):
        locker.lock(name, lease=0).acquire()


def test_tracebacks_show_the_public_names() -> None:
    for name in package.__all__:
        public = getattr(package, name)
        if isinstance(public, type) and issubclass(public, LockerError):
            assert traceback.format_exception_only(public("a")) == [f"locker.{public.__name__}: a\n"]
