"""The fixture for pytest, which finds it by the entry point ``pytest11``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ._locker import Locker
    from .testing import Control


@pytest.fixture
def locker_testing() -> tuple[Locker, Control]:
    """A locker on a store of its own, and what controls the store: see ``locker.testing``."""
    from .testing import memory

    return memory()
