"""The article's program as it stands, beside the article's own class."""

from __future__ import annotations

import importlib.util
import threading
import time
from typing import Any

import pytest
import redis_locker
from servers import GENEROUS, Redis

from locker import Limited, LockerExc, RedisLocker, RetriesExhausted, TimedOut

PROGRAM = '''
from {module} import RedisLocker
locker = RedisLocker({first}, max_retry=3, retry_delay=2, timeout=10)

@locker.lock_on_argument(3, 0, 1)
def function_tobe_locked(bank_card_id, withdraw, *args):
    return key_inside(bank_card_id, withdraw)
'''


def run(name: str, module: str, first: object, key_inside: Any) -> Any:
    """Runs the program of the article, as the module `name`."""
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    program = importlib.util.module_from_spec(spec)
    program.__dict__["key_inside"] = key_inside
    program.__dict__["first"] = first
    exec(PROGRAM.format(module=module, first="first"), program.__dict__)
    return program.function_tobe_locked  # type: ignore[attr-defined]


def test_program_runs_as_it_stands(redis: Redis, name: str) -> None:
    tokens: list[str] = []

    def look(*arguments: object) -> str:
        key = redis_locker.key_of(ours, *arguments)
        tokens.append(str(redis.client.get(key)))
        assert 0 < redis.client.pttl(key) <= 3000
        return "done"

    path = f"{name}.bank"
    ours = run(path, "locker", redis.url, look)
    theirs = run(path, "redis_locker", redis.client, look)
    assert ours.__name__ == "function_tobe_locked"
    assert (ours("visa", 30, "memo"), theirs("visa", 30, "memo")) == ("done", "done")
    assert [len(token.split()[0]) for token in tokens] == [32, 32]


@pytest.mark.parametrize("holder", ["locker", "redis_locker"])
def test_each_excludes_the_other(redis: Redis, name: str, holder: str) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay(*arguments: object) -> None:
        if arguments[0] == "held":
            inside.set()
            leave.wait(GENEROUS)

    other = "redis_locker" if holder == "locker" else "locker"
    programs = {
        "locker": run(name, "locker", redis.url, stay),
        "redis_locker": run(name, "redis_locker", redis.client, stay),
    }
    thread = threading.Thread(target=programs[holder], args=("held", 1))
    thread.start()
    assert inside.wait(GENEROUS)
    # Another argument is another lock; the third one is no part of the key.
    programs[other]("free", 1)
    entered = threading.Event()
    waiting = threading.Thread(target=lambda: (programs[other]("held", 1, "other"), entered.set()))
    waiting.start()
    assert not entered.wait(0.3)
    leave.set()
    assert entered.wait(GENEROUS)
    for each in (thread, waiting):
        each.join(GENEROUS)


def test_errors_have_the_name_of_the_article(redis: Redis, name: str) -> None:
    def withdraw(card: str) -> None:
        raise AssertionError

    key = redis_locker.key_of(withdraw, "visa")
    redis.client.set(key, "token of another", ex=60)
    started = time.monotonic()
    with pytest.raises(LockerExc) as raised:
        RedisLocker(redis.url, 3, 0.05, 10).lock_on_argument(3, 0)(withdraw)("visa")
    assert isinstance(raised.value, RetriesExhausted)
    assert time.monotonic() - started < 5
    with pytest.raises(LockerExc) as raised:
        RedisLocker(redis.url, max_retry=1000, retry_delay=0.05, timeout=0.2).lock_on_argument(3, 0)(withdraw)("visa")
    assert isinstance(raised.value, TimedOut)
    assert redis.client.get(key) == "token of another"
    redis.client.delete(key)


def test_all_options_are_there(redis: Redis, name: str) -> None:
    locker = RedisLocker(redis.url, prefix="app/", lease=5)
    with locker.lock_on(f"{name}.withdraw", True) as guard:
        assert guard.key.startswith("app/")

    @locker.rate_limit(1, per=60, args=0, name=name, timeout=0)
    def send(user: int) -> int:
        return user

    assert send(1) == 1
    with pytest.raises(Limited):
        send(1)


def test_hold_of_a_slow_body_is_renewed(redis: Redis, name: str) -> None:
    """The article's code loses it without notice."""
    others: list[bool] = []

    def slow(card: str) -> None:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            others.append(bool(redis.client.set(redis_locker.key_of(slow, card), "other", nx=True, ex=1)))
            time.sleep(0.01)

    RedisLocker(redis.url).lock_on_argument(1, 0)(slow)("visa")
    assert not any(others)
