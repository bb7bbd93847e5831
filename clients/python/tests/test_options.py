"""Options that no call could have."""

from __future__ import annotations

from typing import Any

import pytest

from locker import Locker, Misused


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": -1},
        {"timeout": "soon"},
        {"max_retry": 0},
        {"retry_delay": 0},
        {"expr": 0},
        {"expr": "1 day and a half"},
        {"release": "never"},
        {"mode": "exclusive"},
        {"on_lost": "ignore"},
    ],
    ids=str,
)
def test_wrong_option_fails_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(Misused):
        Locker("memory://").lock_on_argument(**options)(lambda: None)


def test_more_mistakes_fail_at_decoration() -> None:
    locker = Locker("memory://")
    with pytest.raises(TypeError, match="there is no option 'leese'"):
        locker.lock_on_argument(leese=1)  # type: ignore[call-overload]
    with pytest.raises(Misused, match="needs an `async def`"):
        locker.lock_on_argument(on_lost="cancel")(lambda: None)
    with pytest.raises(Misused, match="there is no such parameter"):
        locker.lock_on_argument(name="a", guard="lease")(lambda: None)
    with pytest.raises(Misused, match="make it the last parameter"):
        locker.lock_on_argument(name="a", guard="lease")(lambda lease, card: None)
    for wrong in ({"size": -1}, {"size": 1, "args": 0}):
        with pytest.raises(Misused):
            locker.limit_concurrency(**wrong)(lambda: None)  # type: ignore[call-overload]
    for wrong in ({"size": 1, "per": -1}, {"size": 1, "per": 1, "algorithm": "leaky"}, {"size": -1, "per": 1}):
        with pytest.raises(Misused):
            locker.rate_limit(**wrong)(lambda: None)  # type: ignore[arg-type]


def test_options_that_contradict_each_other_fail_at_decoration(name: str) -> None:
    locker = Locker("memory://")
    for options in ({"max_hold": 1}, {"max_hold": 20, "renew": False}, {"max_hold": 20, "min_hold": 21}):
        with pytest.raises(Misused, match="max_hold"):
            locker.lock_on_argument(10, name=name, **options)(lambda: None)
    with pytest.raises(Misused, match="stop_before 6s is more than half of the lease 10s"):
        locker.lock_on_argument(10, name=name, stop_before=6)(lambda: None)
    with pytest.raises(Misused, match="min_hold has no effect"):
        locker.lock_on_argument(10, name=name, min_hold=6, release="on_expiry")(lambda: None)
    with pytest.raises(Misused, match="burst"):
        locker.rate_limit(1, per=1, burst=2, name=name)(lambda: None)
