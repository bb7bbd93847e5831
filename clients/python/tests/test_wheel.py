"""The packages that are published: one wheel for every Python, and an sdist with all that a build needs."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from servers import GENEROUS

PACKAGE = Path(__file__).parents[1]

PROGRAM = """
import asyncio, pickle, sys
from locker import Locker, Misused, TimedOut

locker = Locker("memory://")

@locker.lock_on_argument(10, "card", name="bank.withdraw", guard="lease")
def withdraw(card, *, lease):
    return lease.fence

@locker.lock_on_argument(10, 0)
async def pay(card):
    async with locker.lock("other", lease=1):
        await asyncio.sleep(0.001)
    return card

async def lost():
    try:
        async with locker.lock("lost", lease=0.05, max_hold=0.05):
            await asyncio.sleep(60)
    except Exception as error:
        return type(error).__name__

assert withdraw(1) < withdraw(card=1)
assert asyncio.run(pay("a")) == "a"
assert asyncio.run(lost()) == "Lost"
with locker.lock("a"):
    assert locker.lock("a").try_acquire() is None
try:
    locker.lock_on_argument(10, "cart")(lambda card: None)
except Misused:
    print("done", sys.version_info[:2], flush=True)
"""


def pythons() -> list[str]:
    """Returns every CPython from 3.11 on that can be found, one of each version."""
    found: dict[str, str] = {}
    folders = os.environ["PATH"].split(":")
    folders += glob.glob(os.path.join(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions/*/bin"))
    ask = "import sys; print(sys.version_info >= (3, 11), sys.implementation.name, *sys.version_info[:2])"
    for folder in [str(Path(sys.executable).parent), *folders]:
        for python in glob.glob(os.path.join(folder, "python3*")):
            if Path(python).name.removeprefix("python").replace(".", "").isdigit():
                said = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=GENEROUS)
                if said.stdout.startswith("True cpython"):
                    found.setdefault(said.stdout.strip(), python)
    return list(found.values())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that was built once. It is a debug build, as the one that the other tests use."""
    folder = tmp_path_factory.mktemp("wheel")
    build("build", "-o", str(folder))
    (built,) = folder.glob("*.whl")
    return built


def build(*arguments: str) -> None:
    command = [sys.executable, "-m", "maturin", *arguments, "-m", str(PACKAGE / "Cargo.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS * 10)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(900)
def test_one_wheel_is_for_every_python(wheel: Path, tmp_path: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    assert wheel.name.startswith("locker_rs-")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = []
    for python in pythons():
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
        ran = subprocess.run(
            [python, "-W", "error", "-c", PROGRAM],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=GENEROUS,
        )
        assert ran.returncode == 0, f"{python}: {ran.stderr}"
        done.append(ran.stdout)
    assert len(done) >= 1
    print(done)


def test_wheel_has_types_licences_and_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        described = Parser().parsestr(archive.read(metadata).decode())
    assert {"locker/py.typed", "locker/_native.pyi", "locker/__init__.py"} <= set(names)
    assert {Path(name).name for name in names if "licenses" in name} == {"LICENSE-APACHE", "LICENSE-MIT"}
    assert not [name for name in names if "tests/" in name or "test_" in name or "__pycache__" in name]
    assert described["Name"] == "locker-rs"
    assert described["License-Expression"] == "MIT OR Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    assert described["Description-Content-Type"].startswith("text/markdown")
    assert "# locker for Python" in str(described.get_payload())
    assert len(described.get_all("Project-URL", [])) == 5


def test_sdist_has_all_that_a_build_needs(tmp_path: Path) -> None:
    build_sdist = [sys.executable, "-m", "maturin", "sdist", "-m", str(PACKAGE / "Cargo.toml"), "-o", str(tmp_path)]
    subprocess.run(build_sdist, check=True, capture_output=True, timeout=GENEROUS)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {member.name.split("/", 1)[1]: member for member in archive.getmembers()}
        for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
            found = [name for name in files if name == licence or name == f"clients/python/{licence}"]
            content = archive.extractfile(files[found[0]])
            assert content is not None
            assert content.read() == (PACKAGE.parent.parent / licence).read_bytes()
    assert any(name.endswith("locker-runtime/src/lib.rs") for name in files)
    assert any(name.endswith("stores/redis/src/lua/permissions.lua") for name in files)
    assert any(name.endswith("Cargo.lock") for name in files)
    assert {"pyproject.toml", "PKG-INFO"} <= set(files)
    assert any(name.endswith("README.md") for name in files)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    # The first step of an installation. The workspace has lost all members but two.
    metadata = [sys.executable, "-m", "maturin", "pep517", "write-dist-info", "--interpreter", sys.executable]
    (folder,) = tmp_path.glob("locker_rs-*/")
    done = subprocess.run(
        [*metadata, "--metadata-directory", str(tmp_path)], cwd=folder, capture_output=True, text=True, timeout=GENEROUS
    )
    assert done.returncode == 0, done.stderr
