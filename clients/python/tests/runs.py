"""What tests of records share: bodies of runs, and who calls them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from servers import GENEROUS

from locker import Guard, OnceKeep, OncePer

Call = Callable[[OncePer | OnceKeep, Callable[[Guard], Any]], Any]
"""Runs a body by hand: the fixture ``call``."""

others_share_it = pytest.mark.parametrize(
    "every_url", ["redis", "postgres", "etcd", "mysql", "zookeeper", "file"], indirect=True
)
"""The stores that a process shares with others."""


def fence(run: Guard) -> int:
    """A body that succeeds."""
    assert run.is_held
    return run.fence


async def fence_async(run: Guard) -> int:
    return fence(run)


def plain(run: Guard) -> None:
    """A body that does not run."""
    raise AssertionError


async def later(run: Guard) -> None:
    raise AssertionError


class Body:
    """A body of a thread that lasts until it is told to end, and how."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def __call__(self, run: Guard) -> int:
        self.begun.set()
        assert self.end.wait(GENEROUS)
        if self.error is not None:
            raise self.error
        return run.fence
