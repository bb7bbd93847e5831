"""The types of the package, as type checkers see them."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import typing
from pathlib import Path

from servers import GENEROUS, missing

import locker
from locker import _locker, testing

PACKAGE = Path(__file__).parents[1]


def check(module: str, *arguments: str, directory: Path = PACKAGE) -> str:
    """Runs a type checker, which must find nothing."""
    if importlib.util.find_spec(module.split(".")[0]) is None:
        missing(f"there is no {module}: run scripts/setup-python.sh")
    # The checkers look for packages where this Python does.
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}
    environment["MYPYPATH"] = str(PACKAGE / "python")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=GENEROUS * 2
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mypy_is_content() -> None:
    check("mypy")


def test_pyright_is_content() -> None:
    check("pyright", "--project", ".")


def test_stub_of_the_native_module_is_true(tmp_path: Path) -> None:
    check("mypy.stubtest", "locker._native", directory=tmp_path)


def test_public_types_are_complete() -> None:
    found = json.loads(check("pyright", "--verifytypes", "locker", "--ignoreexternal", "--outputjson"))
    completeness = found["typeCompleteness"]
    assert completeness["completenessScore"] == 1, [
        symbol["name"] for symbol in completeness["symbols"] if not symbol["isTypeKnown"]
    ]


def test_everything_public_is_documented() -> None:
    undocumented = []
    for name in locker.__all__:
        public = getattr(locker, name)
        is_alias = typing.get_origin(public) is not None
        undocumented += [] if inspect.getdoc(public) or is_alias or name == "__version__" else [name]
        if inspect.isclass(public) and public.__module__ != "locker._native":
            methods = [member for member in vars(public) if not member.startswith("_")]
            undocumented += [f"{name}.{member}" for member in methods if not inspect.getdoc(getattr(public, member))]
    assert undocumented == []


def test_examples_of_the_documentation_are_true() -> None:
    for module in (_locker, testing):
        tested = doctest.testmod(module)
        assert tested.attempted > 0
        assert tested.failed == 0
