"""The libraries that are compared: what installs them, which server they need, and how their workers start."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
VENV, NODE = TARGET / "compare-venv", TARGET / "compare-node"
RUST = TARGET / "release" / "examples" / "compare"
JAVA, WORKER = TARGET / "compare-java", HERE / "Worker.java"
CURATOR = Path("/usr/share/java/curator-recipes.jar")
JARS = "curator-recipes curator-framework curator-client zookeeper zookeeper-jute guava slf4j-nop slf4j-api".split()
LIBRARIES = ":".join(f"/usr/share/java/{name}.jar" for name in JARS)
PIP = ["redis", "kazoo", "pytest"]  # The module that starts servers imports pytest.
NPM = ["redlock@5.0.0-beta.2", "redis-semaphore", "ioredis"]

sys.path.insert(0, str(ROOT / "clients" / "python" / "tests"))


class Missing(Exception):
    """What a peer needs is not on this machine."""


@dataclass(frozen=True)
class Peer:
    """A library, or ours on a store."""

    name: str
    worker: str
    """Its name for the worker."""
    server: str
    """`redis`, `postgres`, `mysql`, `etcd`, `zookeeper`, or `none` for locks in one process."""
    program: Callable[[], list[str]]
    version: Callable[[], str]
    """Of the library and, behind a comma, what its workers run on."""
    scheme: str = ""
    """Replaces the scheme of the server's URL."""


def output(*command: str, cwd: Path = ROOT) -> str:
    """Returns what a program prints, without the last end of line."""
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def into_venv() -> None:
    """Makes the virtual environment if it is missing, and goes on in it."""
    if Path(sys.prefix) == VENV:
        return
    python = VENV / "bin" / "python"
    modules = "import redis, kazoo, pytest"
    if not python.exists() or subprocess.run([python, "-c", modules], capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PIP], check=True)
    os.execv(python, [str(python), *sys.argv])


def rust() -> list[str]:
    """Returns the worker in Rust. `build_rust` has built it."""
    return [str(RUST)]


def build_rust() -> None:
    """Builds the worker in Rust."""
    command = ["cargo", "build", "--release", "--all-features", "--example", "compare"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def python() -> list[str]:
    """Returns the worker in Python."""
    return [sys.executable, str(HERE / "worker.py")]


def node() -> list[str]:
    """Returns the worker in JavaScript, with its packages installed."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise Missing("node or npm is not installed")
    NODE.mkdir(parents=True, exist_ok=True)
    if not all((NODE / "node_modules" / name.split("@")[0]).exists() for name in NPM):
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(NODE), *NPM]
        if (done := subprocess.run(install, capture_output=True, text=True)).returncode:
            raise Missing(f"npm install failed: {done.stderr.strip().splitlines()[-1:]}")
    os.environ["NODE_PATH"] = str(NODE / "node_modules")
    offset()
    return ["node", str(HERE / "worker.cjs")]


def java() -> list[str]:
    """Returns the worker in Java, compiled."""
    if not (CURATOR.exists() and shutil.which("javac")):
        raise Missing("Curator or javac is missing: apt install libcurator-recipes-java openjdk-17-jdk-headless")
    if not (JAVA / "Worker.class").exists() or (JAVA / "Worker.class").stat().st_mtime < WORKER.stat().st_mtime:
        output("javac", "-cp", LIBRARIES, "-d", str(JAVA), str(WORKER))
    offset()
    return ["java", "-cp", f"{JAVA}:{LIBRARIES}", "Worker"]


def offset() -> None:
    """Tells workers that read the monotonic clock what the clock of the logs is ahead of it."""
    os.environ["OFFSET"] = str(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns())


def crate(name: str) -> Callable[[], str]:
    """Returns the version of a crate in the lock file."""

    def version() -> str:
        packages = json.loads(output("cargo", "metadata", "--format-version=1", "--all-features"))["packages"]
        return next(f"{name} {package['version']}" for package in packages if package["name"] == name)

    return version


def npm(name: str) -> Callable[[], str]:
    """Returns the version of a package for Node.js, with those of ioredis and Node.js."""

    def version() -> str:
        both = [json.loads((NODE / "node_modules" / one / "package.json").read_text()) for one in (name, "ioredis")]
        return f"{name} {both[0]['version']}, ioredis {both[1]['version']}, Node.js {output('node', '--version')[1:]}"

    return version


def redis_py() -> str:
    """Returns the version of redis-py, with that of Python."""
    import redis

    return f"redis-py {redis.__version__}, Python {sys.version.split()[0]}"


def kazoo() -> str:
    """Returns the version of kazoo, with that of Python."""
    import kazoo.version

    return f"kazoo {kazoo.version.__version__}, Python {sys.version.split()[0]}"


def jar_version(name: str) -> str:
    """Returns the version of a Java library of Debian, an empty text without one."""
    return next((jar.stem.rsplit("-", 1)[1] for jar in Path("/usr/share/java").glob(f"{name}-[0-9]*.jar")), "")


def curator() -> str:
    """Returns the version of Curator, with that of Java."""
    return f"Curator {jar_version('curator-recipes')}, {output('java', '--version').splitlines()[0]}"


def commit() -> str:
    """Returns the commit of the tree."""
    return output("git", "describe", "--always", "--dirty", "--exclude=*")


def own() -> str:
    """Returns the version of locker."""
    return f"locker {commit()}"


PEERS = [
    Peer("locker on Redis", "locker", "redis", rust, own),
    Peer("redis-py", "redis-py", "redis", python, redis_py),
    Peer("rslock", "rslock", "redis", rust, crate("rslock")),
    Peer("node-redlock", "redlock", "redis", node, npm("redlock")),
    Peer("redis-semaphore", "redis-semaphore", "redis", node, npm("redis-semaphore")),
    Peer("locker on etcd", "locker", "etcd", rust, own),
    Peer("etcd v3lock", "v3lock", "etcd", rust, crate("tonic"), "http"),
    Peer("locker on PostgreSQL", "locker", "postgres", rust, own),
    Peer("advisory lock", "advisory", "postgres", rust, crate("tokio-postgres")),
    Peer("locker on MySQL", "locker", "mysql", rust, own),
    Peer("GET_LOCK", "get-lock", "mysql", rust, crate("mysql_async")),
    Peer("locker on ZooKeeper", "locker", "zookeeper", rust, own),
    Peer("Curator", "curator", "zookeeper", java, curator),
    Peer("kazoo", "kazoo", "zookeeper", python, kazoo),
    Peer("locker in memory", "locker", "none", rust, own),
    Peer("tokio::sync::Mutex", "tokio", "none", rust, crate("tokio")),
]


@contextlib.contextmanager
def server(kind: str) -> Iterator[str]:
    """Runs a fresh server that writes to the disk as it does by default, and yields its URL."""
    import servers

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if kind == "redis":
            with servers.redis_server(Path(folder)) as started:
                yield started.url
        elif kind == "postgres":
            with servers.postgres_server(Path(folder), "-c", "fsync=on") as url:
                yield url
        elif kind == "etcd":
            with servers.etcd_server(Path(folder), "--unsafe-no-fsync=false") as url:
                yield url
        elif kind == "mysql":
            with servers.mysql_server(Path(folder)) as url:
                yield url
        elif kind == "zookeeper":
            with servers.zookeeper_server(Path(folder)) as url:
                yield url
        else:
            yield "memory://"


def server_versions() -> list[str]:
    """Returns the versions of the servers on this machine."""
    import servers

    commands = [["redis-server", "--version"], ["etcd", "--version"]]
    commands.append([str(servers.postgres_programs() / "postgres"), "--version"])
    commands.append([shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") or "mariadbd", "--version"])
    versions = [output(*command).splitlines()[0] for command in commands if shutil.which(command[0])]
    return [*versions, *([f"ZooKeeper {version}"] if (version := jar_version("zookeeper")) else [])]
