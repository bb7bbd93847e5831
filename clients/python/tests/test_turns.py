"""Functions of Rust, of this package and of the article's class, with one name: they take turns on one key."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import redis_locker
from servers import GENEROUS, Redis, missing
from taking_turns import Turns

from locker import Locker, RedisLocker

ROOT = Path(__file__).parents[3]


def rust_program() -> str:
    """Returns the path of `tests/programs/turns.rs`, built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = Path(os.environ.get("LOCKER_TEST_TURNS", target / "debug/examples/turns"))
    if not program.exists():
        missing("there is no program `turns`: cargo build -p locker-tests --example turns")
    return str(program)


def test_rust_package_and_article_take_turns(redis: Redis, name: str) -> None:
    turns = Turns(redis, name, 1051)
    rust = subprocess.Popen([rust_program(), redis.url, name, str(turns.total)], stderr=subprocess.PIPE, text=True)

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
    command = [rust_program(), redis.url, with_rust.name, str(with_rust.total)]
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
