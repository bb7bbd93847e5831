"""The events of the runtime in ``logging``, as the logger ``locker``."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
from typing import Final

from . import _native

_logger: Final = logging.getLogger("locker")
_is_running = False


def start() -> None:
    """Begins to log, once in each process: what the level of the logger lets through when the first store is opened.

    The thread is one of Python. The runtime's own threads only leave their events for it, and never wait for a handler.
    Under gevent and the like there are no threads that may block, and nothing is logged.
    """
    global _is_running
    if _is_running or _thread.start_new_thread.__module__ != "_thread":
        return
    _is_running = True
    _native.keep_events(min(max(_logger.getEffectiveLevel(), logging.DEBUG), logging.CRITICAL))
    threading.Thread(target=_run, name="locker-log", daemon=True).start()


def _run() -> None:
    while True:
        _log(wait=True)


def _log(*, wait: bool) -> None:
    for level, message, fields in _native.events(wait=wait):
        named = dict(fields)
        shown = ", ".join(f"{name}={value}" for name, value in fields)
        _logger.log(level, "%s (%s)" if shown else "%s%s", message, shown, extra={"locker": named})


def _forget() -> None:
    """Makes a forked child begin again: it has no thread but its own."""
    global _is_running
    _is_running = False


def _finish() -> None:
    if _is_running:
        _log(wait=False)


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
