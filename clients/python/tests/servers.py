"""Real servers on free ports of this machine. Each ends with the process that started it, however that ends."""

from __future__ import annotations

import contextlib
import glob
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

GENEROUS = 60.0
"""How long a test waits for what has to happen, in seconds."""

NOBODY = 65_534

_KEEPER = '"$0" "$@" & server=$!; read -r _; kill -9 $server 2>/dev/null; wait'
"""Ends the server once its standard input is closed."""


def missing(what: str) -> NoReturn:
    """Skips the test, for a program is missing; with CI=true that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and with CI=true nothing may be skipped")
    pytest.skip(f"skipped: {what}")


def eventually(condition: Callable[[], Any], what: str = "the condition", within: float = GENEROUS) -> Any:
    """Waits until the condition returns something true, and returns that."""
    end = time.monotonic() + within
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come within {within:g} s")
        time.sleep(0.005)
    return result


def free_port() -> int:
    """Returns a port that nobody listens to, and that the system gives to no outgoing connection."""
    for port in random.sample(range(30_000, 32_768), 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("there is no free port")


def answers(port: int) -> bool:
    """Tells whether somebody listens to the port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(command: list[str], directory: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program in a directory, and ends it."""
    with (directory / "log").open("ab") as log:
        keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, *command],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **options,
        )
    try:
        yield keeper
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(GENEROUS)


class Redis:
    """A Redis server that can be stopped, stalled and asked."""

    def __init__(self, port: int, pid: int) -> None:
        import redis

        self.port, self.pid, self.url = port, pid, f"redis://127.0.0.1:{port}"
        self.client = redis.Redis(port=port, decode_responses=True)


@contextlib.contextmanager
def redis_server(directory: Path, *options: str) -> Iterator[Redis]:
    """Runs a Redis server."""
    import redis

    program = shutil.which("redis-server") or missing("there is no redis-server: run scripts/setup-redis.sh")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", *options]
    with running(command, directory):
        probe = redis.Redis(port=port)

        def pid() -> int:
            with contextlib.suppress(redis.RedisError):
                return int(probe.info("server")["process_id"])
            return 0

        yield Redis(port, eventually(pid, "redis-server"))


def postgres_programs() -> Path:
    """Returns where the programs of PostgreSQL are."""
    folders = [os.environ.get("LOCKER_TEST_POSTGRES_BIN", "")]
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda at: float(at.split("/")[4]), reverse=True)
    folders += [os.path.dirname(shutil.which("initdb") or "")]
    for folder in filter(None, folders):
        if (Path(folder) / "initdb").exists():
            return Path(folder)
    missing("there is no initdb: run scripts/setup-postgres.sh")


@contextlib.contextmanager
def postgres_server(directory: Path, *options: str) -> Iterator[str]:
    """Runs a PostgreSQL server, without `fsync` unless an option says so, and yields the URL of its database."""
    programs, port = postgres_programs(), free_port()
    account: dict[str, Any] = {}
    if os.geteuid() == 0:
        # The programs refuse to run as root, and the folders above must let them pass.
        os.chown(directory, NOBODY, NOBODY)
        account = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    initdb = [str(programs / "initdb"), "-D", "data", "-U", "locker", "--auth=trust", "--no-locale", "--no-sync"]
    initdb += ["--encoding=UTF8"]
    subprocess.run(initdb, cwd=directory, check=True, capture_output=True, **account)
    command = [str(programs / "postgres"), "-D", "data", "-p", str(port), "-k", "", "-F"]
    with running([*command, "-c", "listen_addresses=127.0.0.1", *options], directory, **account):
        psql = [str(programs / "psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "locker", "-d", "postgres", "-c"]
        eventually(lambda: subprocess.run([*psql, "SELECT 1"], capture_output=True).returncode == 0, "postgres")
        yield f"postgres://locker@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def mysql_server(directory: Path, *options: str) -> Iterator[str]:
    """Runs a MariaDB server, and yields the URL of its database."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    program = shutil.which("mariadbd", path=path) or missing("there is no mariadbd: run scripts/setup-mysql.sh")
    account: dict[str, Any] = {}
    if os.geteuid() == 0:
        # The server refuses to run as root, and the folders above must let it pass.
        os.chown(directory, NOBODY, NOBODY)
        account = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    files = [f"--datadir={directory / 'data'}", f"--tmpdir={directory}"]
    install = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run([*install, *files], cwd=directory, check=True, capture_output=True, **account)
    init, port = directory / "init.sql", free_port()
    init.write_text("CREATE DATABASE locker;\nCREATE USER locker;\nGRANT ALL ON *.* TO locker;\n")
    init.chmod(0o644)
    command = [program, "--no-defaults", *files, f"--port={port}", f"--socket={directory / 'socket'}"]
    command += [f"--init-file={init}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
    command += ["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M", *options]
    with running(command, directory, **account):
        client = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "locker", "locker", "-e"]
        eventually(lambda: subprocess.run([*client, "SELECT 1"], capture_output=True).returncode == 0, "mariadbd")
        yield f"mysql://locker@127.0.0.1:{port}/locker"


@contextlib.contextmanager
def etcd_server(directory: Path, *options: str) -> Iterator[str]:
    """Runs an etcd member, without `fsync` unless an option says so, and yields its URL."""
    program = shutil.which("etcd") or missing("there is no etcd: run scripts/setup-etcd.sh")
    client, peer = free_port(), free_port()
    command = [program, "--data-dir", "data", "--unsafe-no-fsync"]
    command += ["--listen-client-urls", f"http://127.0.0.1:{client}"]
    command += ["--advertise-client-urls", f"http://127.0.0.1:{client}"]
    command += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
    command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"]
    command += ["--initial-cluster", f"default=http://127.0.0.1:{peer}", *options]
    with running(command, directory):
        eventually(lambda: answers(client), "etcd")
        yield f"etcd://127.0.0.1:{client}"


@contextlib.contextmanager
def zookeeper_server(directory: Path) -> Iterator[str]:
    """Runs a ZooKeeper server, and yields its URL."""
    libraries = os.environ.get("LOCKER_TEST_ZOOKEEPER", "/usr/share/java/zookeeper.jar")
    program = shutil.which("java")
    if program is None or not Path(libraries.split(":")[0]).exists():
        missing("there is no ZooKeeper or no java: run scripts/setup-zookeeper.sh")
    port = free_port()
    settings = f"dataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
    (directory / "zoo.cfg").write_text(f"{settings}tickTime=500\nadmin.enableServer=false\n")
    command = [program, "-Xmx128m", "-cp", libraries, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]
    with running(command, directory):
        eventually(lambda: answers(port), "ZooKeeper")
        yield f"zk://127.0.0.1:{port}"
