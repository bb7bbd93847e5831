"""The stores of the tests: this process's memory, and servers that are started once and only if a test asks."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from runs import Call
from servers import GENEROUS
from tasks import Run

from locker import Guard, OnceKeep, OncePer


@pytest.fixture(scope="session")
def redis() -> Iterator[servers.Redis]:
    """A Redis server of this run."""
    with tempfile.TemporaryDirectory() as directory, servers.redis_server(Path(directory)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server of this run."""
    with tempfile.TemporaryDirectory() as directory, servers.postgres_server(Path(directory)) as url:
        yield url


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    """The URL of a MariaDB server of this run."""
    with tempfile.TemporaryDirectory() as directory, servers.mysql_server(Path(directory)) as url:
        yield url


@pytest.fixture(scope="session")
def etcd_url() -> Iterator[str]:
    """The URL of an etcd member of this run."""
    with tempfile.TemporaryDirectory() as directory, servers.etcd_server(Path(directory)) as url:
        yield url


@pytest.fixture(scope="session")
def zookeeper_url() -> Iterator[str]:
    """The URL of a ZooKeeper server of this run."""
    with tempfile.TemporaryDirectory() as directory, servers.zookeeper_server(Path(directory)) as url:
        yield url


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a store: each test runs on all of them."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue("redis").url)


@pytest.fixture(params=["memory", "redis", "postgres", "etcd", "mysql", "zookeeper", "file"])
def every_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store: for the few tests that run on each kind."""
    if request.param == "file":
        with tempfile.TemporaryDirectory() as directory:
            yield f"file://{directory}"
    elif request.param in ("postgres", "etcd", "mysql", "zookeeper"):
        yield str(request.getfixturevalue(f"{request.param}_url"))
    else:
        yield "memory://" if request.param == "memory" else str(request.getfixturevalue("redis").url)


def of_uvloop() -> asyncio.AbstractEventLoop:
    """Makes a loop of a package that not all tests need."""
    import uvloop

    return uvloop.new_event_loop()


@pytest.fixture(params=[asyncio.SelectorEventLoop, of_uvloop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a loop of its own."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, GENEROUS))

    return run


@pytest.fixture(params=["def", "async def"])
def call(request: pytest.FixtureRequest) -> Call:
    """Runs a body by hand, which is plain, or in a coroutine."""

    def call(once: OncePer | OnceKeep, body: Callable[[Guard], Any]) -> Any:
        if request.param == "def":
            return once.run(body)

        async def later(run: Guard) -> Any:
            return body(run)

        return asyncio.run(asyncio.wait_for(once.run_async(later), GENEROUS))

    return call


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"test-{uuid.uuid4().hex}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says the result as `cargo test` does: `scripts/test.sh` adds them up."""
    count = {outcome: len(terminalreporter.getreports(outcome)) for outcome in ("passed", "failed", "error", "skipped")}
    failed = count["failed"] + count["error"]
    result = "FAILED" if failed else "ok"
    text = f"test result: {result}. {count['passed']} passed; {failed} failed; {count['skipped']} ignored"
    terminalreporter.write_line(text)
