"""What the tests run in processes of their own: everything here can be imported by its name."""

from __future__ import annotations

import os
from pathlib import Path

from locker import Locker

LOCKER = Locker(os.environ.get("LOCKER_TEST_URL", "memory://"), lease=5, timeout=60)


@LOCKER.lock_on_argument(5, "path", name="workers.add")
def add(path: str) -> None:
    """Adds one to the number in a file, in two steps that nobody else may come between."""
    number = int(Path(path).read_text())
    Path(path).write_text(str(number + 1))


def add_often(path: str, times: int) -> int:
    """Adds so many."""
    for _ in range(times):
        add(path)
    return os.getpid()


def hold_and_drop(url: str, name: str) -> None:
    """Drops a guard, whose release goes on in the background, at the end of the process."""
    guard = Locker(url, lease=60).lock(name).acquire()
    assert guard.is_held
