"""What the tests run in processes of their own: everything here can be imported by its name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from locker import Guard, Locker

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


def lead_often(url: str, name: str, path: str, times: int) -> list[int]:
    """Leads so many times. A file that exists means that another one leads, too; its neighbour has the last fence."""
    locker, last = Locker(url), Path(f"{path}.last")

    @locker.leader(name, guard="term")
    async def lead(term: Guard) -> int:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        assert not last.exists() or int(last.read_text()) < term.fence
        last.write_text(str(term.fence))
        os.unlink(path)
        return term.fence

    async def often() -> list[int]:
        return [await lead() for _ in range(times)]

    return asyncio.run(often())


def hold_and_drop(url: str, name: str) -> None:
    """Drops a guard, whose release goes on in the background, at the end of the process."""
    guard = Locker(url, lease=60).lock(name).acquire()
    assert guard.is_held


def pay_once(url: str, name: str, path: str, times: int) -> list[str]:
    """Calls a function so many times whose results are kept. The file has the orders that it has run for."""

    @Locker(url).idempotent("1d", args="order", name=name, guard="run")
    def pay(order: int, run: Guard) -> str:
        with Path(path).open("a") as orders:
            orders.write(f"{order}\n")
        return f"{order} by {os.getpid()} at {run.fence}"

    return [pay(order) for order in range(times)]


def run_once(url: str, name: str, path: str, times: int) -> list[int]:
    """Calls a function so many times that runs once per month. The file has the months that it has run for."""

    @Locker(url).once_per("366d", args="month", name=name, guard="run")
    def bill(month: int, run: Guard) -> int:
        with Path(path).open("a") as months:
            months.write(f"{month}\n")
        return run.fence

    return [fence for month in range(times) if (fence := bill(month)) is not None]
