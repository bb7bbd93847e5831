"""What tests of coroutines share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from locker import HasKey, Locker

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on a loop of its own: the fixture ``run``."""

asyncio_only = pytest.mark.parametrize("run", [asyncio.SelectorEventLoop], indirect=True, ids=["asyncio"])


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Waits until the condition holds. The test ends it at the latest."""
    while not await condition():
        await asyncio.sleep(0.005)


async def waiting(locker: Locker, of: str | HasKey, count: int) -> None:
    """Waits until so many callers wait."""

    async def is_so() -> bool:
        seen = await locker.inspect_async(of)
        return (0 if seen is None else seen.waiting) == count

    await until(is_so)


async def is_free(locker: Locker, of: str | HasKey) -> bool:
    """Tells whether nobody holds it, nor waits for it."""
    seen = await locker.inspect_async(of)
    return seen is None or not (seen.holders or seen.waiting)
