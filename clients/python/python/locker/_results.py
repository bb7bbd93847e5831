"""Results of runs as their record keeps them: JSON text, which other languages read, too."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from . import _native

_LOGGER: Final = logging.getLogger("locker")
_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(result: object, key: str) -> bytes | None:
    """Returns the JSON text of a result; ``None`` if it has none, with a warning that names the key of the record."""
    try:
        return _JSON.encode(result).encode()
    except Exception as error:
        # Whatever it is, the run has succeeded.
        _LOGGER.warning("%s: the result was not kept, because it has no JSON text: %s", key, error)
        return None


def read(done: _native.Done) -> Any:
    """Returns the result of another run.

    Raises:
        Conflict: It was not kept, or cannot be read.
    """
    text = done.text
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        # Some of these errors have the result in them.
        raise done.unread() from None
