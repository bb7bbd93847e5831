"""Measures locked calls of this package beside other Python locks, in one run, and prints tables in Markdown.

    pip install pytest redis python-redis-lock pottery
    maturin develop --release -m clients/python/Cargo.toml
    python clients/python/benches/compare.py            # about two minutes; --smoke only tries everything once

It starts a `redis-server` on a free port of this machine. Nobody contends: a call takes a free lock and releases it.
The contenders take turns in rounds, in an order that is drawn anew, so that what disturbs the machine disturbs all of
them. A figure is the median of the rounds, and so is a ratio: each round has one of its own. What is not installed is
left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locker import Locker, __version__

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

Sync = Callable[[], object]
Async = Callable[[], Awaitable[object]]


@contextlib.contextmanager
def redis_server() -> Iterator[Any]:
    """Runs a Redis server."""
    import servers

    with tempfile.TemporaryDirectory() as directory, servers.redis_server(Path(directory)) as server:
        yield server


def installed(module: str) -> Any:
    """Returns a module, or `None` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def sync_contenders(url: str) -> dict[str, Sync]:
    """Returns the locked calls of this package in plain functions."""
    locker = Locker(url)
    request = locker.lock("bench by hand")

    @locker.lock_on_argument(10, 0, name="bench")
    def decorated(card: int) -> int:
        return card

    def by_hand() -> None:
        with request:
            pass

    return {"locker, decorator": lambda: decorated(7), "locker, `with`": by_hand}


def async_contenders(url: str) -> dict[str, Async]:
    """Returns the locked calls of this package in coroutines."""
    locker = Locker(url)
    request = locker.lock("bench by hand")

    @locker.lock_on_argument(10, 0, name="bench")
    async def decorated(card: int) -> int:
        return card

    async def by_hand() -> None:
        async with request:
            pass

    return {"locker, decorator": lambda: decorated(7), "locker, `async with`": by_hand}


def others_on_redis(server: Any) -> dict[str, Sync]:
    """Returns the locked calls of other packages in plain functions."""
    found: dict[str, Sync] = {}
    if (redis := installed("redis")) is not None:
        client = redis.Redis(port=server.port)
        lock = client.lock("bench redis-py", timeout=10)

        def redis_py() -> None:
            with lock:
                pass

        found["redis-py `Lock`"] = redis_py
        if (redis_lock := installed("redis_lock")) is not None:

            def python_redis_lock() -> None:
                with redis_lock.Lock(client, "bench python-redis-lock", expire=10):
                    pass

            found["python-redis-lock"] = python_redis_lock
        if (pottery := installed("pottery")) is not None:
            redlock = pottery.Redlock(key="bench pottery", masters={client}, auto_release_time=10)

            def of_pottery() -> None:
                with redlock:
                    pass

            found["pottery `Redlock`"] = of_pottery
    return found


def async_others_on_redis(server: Any) -> dict[str, Async]:
    """Returns the locked calls of other packages in coroutines."""
    if installed("redis.asyncio") is None:
        return {}
    lock = importlib.import_module("redis.asyncio").Redis(port=server.port).lock("bench async", timeout=10)

    async def redis_asyncio() -> None:
        async with lock:
            pass

    return {"`redis.asyncio.Lock`": redis_asyncio}


def measure(contenders: dict[str, Sync], rounds: int, calls: int) -> dict[str, list[float]]:
    """Returns the microseconds per call of each round."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in random.sample(sorted(contenders), len(contenders)):
            call = contenders[name]
            start = time.perf_counter()
            for _ in range(calls):
                call()
            if number > 0:
                found[name].append((time.perf_counter() - start) / calls * 1e6)
    return found


async def measure_async(contenders: dict[str, Async], rounds: int, calls: int) -> dict[str, list[float]]:
    """Returns the microseconds per call of each round."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in random.sample(sorted(contenders), len(contenders)):
            call = contenders[name]
            start = time.perf_counter()
            for _ in range(calls):
                await call()
            if number > 0:
                found[name].append((time.perf_counter() - start) / calls * 1e6)
    return found


async def measure_together(url: str, server: Any, rounds: int, calls: int, tasks: int) -> dict[str, list[float]]:
    """Returns the microseconds per call of each round, if so many coroutines call at a time, each with its own lock."""
    locker = Locker(url)
    makers: dict[str, Callable[[int], Any]] = {"locker, `async with`": lambda at: locker.lock(f"bench {at}")}
    if installed("redis.asyncio") is not None:
        client = importlib.import_module("redis.asyncio").Redis(port=server.port)
        makers["`redis.asyncio.Lock`"] = lambda at: client.lock(f"bench async {at}", timeout=10)
    each = max(1, calls // tasks)

    async def one(lock: Any) -> None:
        for _ in range(each):
            async with lock:
                pass

    found: dict[str, list[float]] = {name: [] for name in makers}
    for number in range(rounds + 1):
        for name in random.sample(sorted(makers), len(makers)):
            locks = [makers[name](at) for at in range(tasks)]
            start = time.perf_counter()
            await asyncio.gather(*map(one, locks))
            if number > 0:
                found[name].append((time.perf_counter() - start) / (each * tasks) * 1e6)
    return found


def show(title: str, found: dict[str, list[float]], base: str | None) -> None:
    """Prints a table. The ratio says how many times as fast as `base` a contender is."""
    print(f"\n**{title}**\n")
    print("| lock | µs per call | fastest to slowest round | times as fast |")
    print("| --- | ---: | ---: | ---: |")
    for name, times in sorted(found.items(), key=lambda item: statistics.median(item[1])):
        ratio = ""
        if base in found and base is not None:
            ratio = f"{statistics.median(other / own for own, other in zip(times, found[base], strict=True)):.2f}"
        print(f"| {name} | {statistics.median(times):.1f} | {min(times):.1f} to {max(times):.1f} | {ratio} |")


WAITERS = """
import asyncio, os, sys, time
kind, url, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    if kind == "locker":
        from locker import Locker
        request = Locker(url).lock("waiters", lease=60, timeout=600)
        wait = request.acquire_async
        guard = await request.acquire_async()
    else:
        from redis.asyncio import BlockingConnectionPool, Redis
        client = Redis(connection_pool=BlockingConnectionPool.from_url(url, max_connections=50, timeout=600))
        held = client.lock("waiters redis-py", timeout=600)
        await held.acquire()
        wait = lambda: client.lock("waiters redis-py", timeout=600).acquire()
    # The first of a kind pays for what all share.
    tasks = [asyncio.create_task(wait())]
    await asyncio.sleep(0.5)
    before = memory()
    tasks += [asyncio.create_task(wait()) for _ in range(count)]
    await asyncio.sleep(max(1, seconds / 2))
    bytes_each = (memory() - before) / count
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    cpu = (time.process_time() - cpu) / seconds
    print(bytes_each, cpu, flush=True)
    os._exit(0)

asyncio.run(main())
"""


def waiters(server: Any, count: int, seconds: float) -> None:
    """Prints what coroutines cost that wait for one lock, in memory and processors."""
    print(f"\n**{count:,} coroutines that wait for one lock**\n")
    print("| lock | bytes each | CPU of the process | CPU of Redis |")
    print("| --- | ---: | ---: | ---: |")

    def used() -> float:
        cpu = server.client.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    kinds = [("locker", "locker", "memory://"), ("locker", "locker", server.url)]
    if installed("redis") is not None:
        kinds.append(("`redis.asyncio.Lock`", "redis-py", server.url))
    for name, kind, url in kinds:
        start, of_redis = time.monotonic(), used()
        command = [sys.executable, "-c", WAITERS, kind, url, str(count), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        of_redis = (used() - of_redis) / (time.monotonic() - start)
        each, cpu = map(float, done.stdout.split())
        store = "memory" if url.startswith("memory") else "Redis"
        print(f"| {name}, {store} | {each:,.0f} | {cpu:.2%} | {'' if store == 'memory' else f'{of_redis:.2%}'} |")


def main() -> None:
    """Runs everything."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--calls", type=int, default=1000, help="per round and lock, on Redis; in memory ten times")
    options.add_argument("--waiters", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=10, help="how long to watch the waiters")
    options.add_argument("--smoke", action="store_true", help="only try everything once")
    given = options.parse_args()
    if given.smoke:
        given.rounds, given.calls, given.waiters, given.seconds = 1, 5, 20, 0.2
    uncontended, loop_lock = threading.Lock(), asyncio.Lock()

    def thread_lock() -> None:
        with uncontended:
            pass

    async def asyncio_lock() -> None:
        async with loop_lock:
            pass

    origin = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(origin, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
    print(f"locker {__version__} at {commit or 'an unknown commit'}, {datetime.now(UTC):%Y-%m-%d}")
    print(f"CPython {platform.python_version()}, {platform.system()} {platform.machine()}")
    with redis_server() as server:
        in_memory: dict[str, Sync] = {**sync_contenders("memory://"), "`threading.Lock`": thread_lock}
        show("Plain functions, memory", measure(in_memory, given.rounds, given.calls * 10), None)

        async def in_loop() -> tuple[dict[str, list[float]], dict[str, list[float]]]:
            memory: dict[str, Async] = {**async_contenders("memory://"), "`asyncio.Lock`": asyncio_lock}
            redis: dict[str, Async] = {**async_contenders(server.url), **async_others_on_redis(server)}
            return (
                await measure_async(memory, given.rounds, given.calls * 10),
                await measure_async(redis, given.rounds, given.calls),
            )

        on_redis = {**sync_contenders(server.url), **others_on_redis(server)}
        show("Plain functions, Redis", measure(on_redis, given.rounds, given.calls), "redis-py `Lock`")
        memory, redis = asyncio.run(in_loop())
        show("Coroutines, memory", memory, None)
        show("Coroutines, Redis", redis, "`redis.asyncio.Lock`")
        for tasks in (16, 64):
            together = asyncio.run(measure_together(server.url, server, given.rounds, given.calls, tasks))
            show(f"{tasks} coroutines at a time, Redis", together, "`redis.asyncio.Lock`")
        waiters(server, given.waiters, given.seconds)


if __name__ == "__main__":
    main()
