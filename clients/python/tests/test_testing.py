"""Lockers for tests of an application: time, losses and outages on command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from servers import GENEROUS

from locker import Limited, Locker, Lost, Misused, TimedOut, Unavailable
from locker.testing import Control, memory

HOUR = 3600


def test_unrenewed_hold_ends_with_its_lease(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing
    guard = locker.lock("report", lease=HOUR, renew=False).acquire()
    control.advance(HOUR / 2)
    assert guard.is_held
    assert locker.lock("report").try_acquire() is None
    control.advance(timedelta(minutes=30))
    with pytest.raises(Lost):
        guard.check()
    with locker.lock("report", timeout=0):
        pass


def test_renewed_hold_survives(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing
    with locker.lock("report", lease=10) as guard:
        control.advance("1h")
        guard.check()
        assert locker.lock("report").try_acquire() is None


def test_limit_refills(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing

    @locker.rate_limit(1, per=HOUR, args="user", timeout=0)
    def mail(user: int) -> str:
        return f"to {user}"

    mail(1)
    with pytest.raises(Limited):
        mail(1)
    control.advance(HOUR)
    assert mail(1) == "to 1"


def test_lost_hold_cancels_a_coroutine(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing

    @locker.lock_on_argument(HOUR, "order", name="order.load")
    async def load(order: int, begun: asyncio.Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        begun = asyncio.Event()
        loading = asyncio.create_task(load(7, begun))
        await asyncio.wait_for(begun.wait(), GENEROUS)
        assert not control.lose(locker.lock_on("order.load", 8))
        assert control.lose(locker.lock_on("order.load", 7))
        with pytest.raises(Lost):
            await asyncio.wait_for(loading, GENEROUS)

    asyncio.run(main())


def test_lost_hold_serves_a_waiting_thread(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing
    guard = locker.lock("report").acquire()
    fences: list[int] = []

    def wait() -> None:
        with locker.lock("report", timeout=GENEROUS) as next_guard:
            fences.append(next_guard.fence)

    thread = threading.Thread(target=wait)
    thread.start()
    assert control.lose(guard)
    assert not guard.is_held
    thread.join(GENEROUS)
    assert fences and fences[0] > guard.fence


def test_outage_ends_with_its_block(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing
    guard = locker.lock("report").acquire()
    with pytest.raises(ZeroDivisionError), control.outage():
        with pytest.raises(Unavailable):
            locker.lock("other", timeout=0).acquire()
        with pytest.raises(Unavailable):
            control.lose("lock:report")
        assert guard.is_held
        raise ZeroDivisionError
    locker.lock("other", timeout=0).acquire().release()
    guard.release()


def test_lockers_share_nothing(locker_testing: tuple[Locker, Control]) -> None:
    locker, control = locker_testing
    other, _ = memory()
    guard = other.lock("report", lease=HOUR, renew=False).acquire()
    with locker.lock("report"):
        control.advance(2 * HOUR)
    with control.outage():
        assert guard.is_held
        guard.release()
    assert Locker("memory://").inspect(other.lock("report")) is None


def test_settings_are_those_of_a_locker() -> None:
    locker, _ = memory(prefix="shop:", timeout=0)
    guard = locker.lock("report").acquire()
    assert guard.key == "shop:lock:report"
    with pytest.raises(TimedOut):
        locker.lock("report").acquire()
    guard.release()
    assert (locker.url, repr(locker)) == ("memory://", "<locker.Locker memory://>")
    with pytest.raises(Misused, match="lease"):
        memory(lease=0)
    with pytest.raises(TypeError, match="colour"):
        memory(colour="red")  # type: ignore[call-arg]


def test_names_and_wrong_times_are_refused(locker_testing: tuple[Locker, Control]) -> None:
    _, control = locker_testing
    with pytest.raises(Misused, match=r"lose\(locker.lock\('report'\)\)"):
        control.lose("report")
    for by in (-1, None, "soon"):
        with pytest.raises(Misused):
            control.advance(by)  # type: ignore[arg-type]


def test_import_of_the_package_brings_no_pytest() -> None:
    program = "import sys, locker, locker.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=GENEROUS)
