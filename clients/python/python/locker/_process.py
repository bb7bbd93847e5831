"""What happens to lockers when their process forks, and when it ends."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import deque
from typing import Final

from . import _bodies, _native

PATIENCE: Final = 2.0
"""How long the end of the process waits for releases in the background, in seconds."""

_RECENT: Final[deque[_native.Locker]] = deque(maxlen=64)
"""The lockers of this process. One that nobody has any more may still have a release under way."""


def remember(locker: _native.Locker) -> None:
    """Makes the end of the process wait for this locker."""
    _RECENT.append(locker)


def default_url() -> str:
    """Returns the URL of a locker that was given none."""
    return os.environ.get("LOCKER_URL") or "memory://"


def _settle() -> None:
    end = time.monotonic() + PATIENCE
    bridge = _native.Bridge()
    for locker in tuple(_RECENT):
        call = locker.settled()
        while call.poll(bridge, 0) is _native.PENDING and time.monotonic() < end:
            time.sleep(0.005)
    bridge.close()


def _forked() -> None:
    _native.forked()
    _bodies.forget()
    _expect_worker()


_is_expecting = False


def _expect_worker() -> None:
    """Makes this process wait at its end if it is about to become a worker of `multiprocessing`."""
    global _is_expecting
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_expecting:
        _is_expecting = True
        # Its children forget what was to be done at the end, and then do what is registered here.
        util.register_after_fork(_settle, _settle_with_worker)


def _settle_with_worker(_: object) -> None:
    """Makes a process of `multiprocessing` wait at its end, which calls nothing of `atexit`."""
    from multiprocessing.util import Finalize

    Finalize(None, _settle, exitpriority=0)


if "multiprocessing.process" in sys.modules and sys.modules["multiprocessing.process"].parent_process() is not None:
    _settle_with_worker(None)
_expect_worker()
atexit.register(_settle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
