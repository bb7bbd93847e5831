"""Functions of Rust, of this package and of the article's class, with one name: they have one key."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
import redis_locker
from servers import GENEROUS, Redis, missing
from taking_turns import Turns

from locker import Conflict, Locker, RedisLocker

ROOT = Path(__file__).parents[3]


def rust_program(name: str) -> str:
    """Returns the path of a program of `tests/programs`, built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = Path(os.environ.get(f"LOCKER_TEST_{name.upper()}", target / "debug/examples" / name))
    if not program.exists():
        missing(f"there is no program `{name}`: cargo build -p locker-tests --all-features --example {name}")
    return str(program)


def test_rust_package_and_article_take_turns(redis: Redis, name: str) -> None:
    turns = Turns(redis, name, 1051)
    command = [rust_program("turns"), redis.url, name, str(turns.total)]
    rust = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def withdraw(card: str, amount: int, party: str) -> None:
        turns.body(party)

    # The article's keys have the module and the function.
    withdraw.__module__ = "turns"
    ours = RedisLocker(redis.url, max_retry=None, timeout=GENEROUS).lock_on_argument(30, 0, 1)(withdraw)
    article = redis_locker.RedisLocker(redis.client, max_retry=10**6, retry_delay=0.001, timeout=GENEROUS)
    theirs = article.lock_on_argument(30, 0, 1)(withdraw)
    turns.take({"package": lambda party: ours(name, 30, party), "article": lambda party: theirs(name, 30, party)})
    errors = rust.communicate(timeout=GENEROUS)[1]
    assert rust.returncode == 0, errors
    found = turns.alternations()
    assert sum(count for (one, other), count in found.items() if one != other) >= 1000, found
    assert {one for one, _ in found} == {"rust", "package", "article"}


def test_package_takes_500_turns_with_each_of_the_others(redis: Redis, name: str) -> None:
    def withdraw(card: str, amount: int, turns: Turns, party: str) -> None:
        turns.body(party)

    withdraw.__module__ = "turns"
    plain = RedisLocker(redis.url, max_retry=None, timeout=GENEROUS).lock_on_argument(30, 0, 1)(withdraw)
    article = redis_locker.RedisLocker(redis.client, max_retry=10**6, retry_delay=0.001, timeout=GENEROUS)
    theirs = article.lock_on_argument(30, 0, 1)(withdraw)
    with_article = Turns(redis, f"{name}-article", 501)
    with_article.take(
        {
            "package": lambda party: plain(with_article.name, 30, with_article, party),
            "article": lambda party: theirs(with_article.name, 30, with_article, party),
        }
    )
    assert sum(with_article.alternations().values()) == 500
    assert len(with_article.alternations()) == 2

    with_rust = Turns(redis, f"{name}-rust", 501)
    command = [rust_program("turns"), redis.url, with_rust.name, str(with_rust.total)]
    rust = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    locker = Locker(redis.url, timeout=GENEROUS)

    @locker.lock_on_argument(30, "card", "amount", name="turns.withdraw")
    async def withdraw_async(card: str, amount: int, party: str) -> None:
        with_rust.body(party)
        await asyncio.sleep(0)

    with_rust.take({"package": lambda party: asyncio.run(withdraw_async(with_rust.name, 30, party))})
    errors = rust.communicate(timeout=GENEROUS)[1]
    assert rust.returncode == 0, errors
    assert with_rust.alternations() == {("package", "rust"): 250, ("rust", "package"): 250}


def test_results_are_kept_for_both_languages(redis: Redis, name: str) -> None:
    @Locker(redis.url).idempotent("1h", args="request", same="amount", name="repeats.pay")
    def pay(request: str, amount: int) -> dict[str, object]:
        return {"by": "python: größe", "amount": amount}

    def pay_in_rust(request: str, amount: int) -> str:
        command = [rust_program("repeats"), redis.url, request, str(amount)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=GENEROUS).stdout.strip()

    first, second = f"{name}:1", f"{name}:2"
    assert pay(first, 30) == {"by": "python: größe", "amount": 30}
    assert pay_in_rust(first, 30) == "30 by python: größe"
    assert pay_in_rust(first, 50) == "Conflict"
    assert pay_in_rust(second, 30) == "30 by rust: größe"
    assert pay(second, 30) == {"by": "rust: größe", "amount": 30}
    with pytest.raises(Conflict, match="must be the same"):
        pay(second, 50)
