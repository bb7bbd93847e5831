"""The options that holds have in common."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import timedelta
from typing import Final, Literal, TypeAlias, TypedDict

from ._errors import Misused

Seconds: TypeAlias = int | float | str | timedelta
"""A time: seconds (``10``, ``0.5``), a text (``"800ms"``, ``"1m 30s"``) or a ``timedelta``."""

Algorithm: TypeAlias = Literal["token_bucket", "fixed_window", "gcra"]
"""How a rate limit counts. ``docs/reference/primitives.md`` has the bounds of each."""

Mode: TypeAlias = Literal["read", "write"]
"""A side of a read/write lock."""

OnLost: TypeAlias = Literal["cancel", "error", "continue"]
"""What the loss of a hold does to the body under it.

``"cancel"`` cancels the task and raises ``Lost``: the default in coroutines, and only there. ``"error"`` lets the body
run to its end and raises ``Lost`` then: the default elsewhere. ``"continue"`` only logs a warning.
"""

AfterCrash: TypeAlias = Literal["repeat", "refuse"]
"""What follows a run that has ended without a report: the next caller runs, or all get ``Lost``."""

Release: TypeAlias = Literal["on_return", "on_expiry"]
"""When a hold ends: with its body, or with its lease."""


class WaitOptions(TypedDict, total=False):
    """How a call waits for a hold, and how it holds it.

    Attributes:
        timeout: The longest wait. 0 tries once, ``math.inf`` waits for ever. Default 10 s; 0 with
            ``release="on_expiry"``.
        max_retry: The number of attempts, the first included. A hand-off is none. Default: without a limit.
        retry_delay: The time between two attempts with ``max_retry``, else the longest pause after an error. Default
            2 s.
        renew: Whether the lease is renewed while the hold lasts. Default ``True``.
        max_hold: The longest hold, renewals included; at least the lease. Default: none.
        stop_before: How long before the end of its lease a hold that is not renewed counts as lost. It is not released
            then, so that what is on its way arrives before the next caller has the lock. At most half of the lease.
            Default 0.
        min_hold: How long a hold lasts at least, although its body ends before, also with an error. At most
            ``max_hold``. Default 0.
        fair: ``False`` lets the call overtake waiters that have ``fair=False``, too. Default ``True``.
    """

    timeout: Seconds | None
    max_retry: int | None
    retry_delay: Seconds | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None


class HoldOptions(WaitOptions, total=False):
    """The options of a hold, see `WaitOptions`. What is not given comes from the ``Locker``.

    Attributes:
        release: ``"on_expiry"`` keeps the hold until its lease ends, however the body ends. Default: ``"on_return"``.
    """

    release: Release | None


class RequestOptions(HoldOptions, total=False):
    """The options of a request by hand: those of all holds, the lease, and what a loss does.

    Attributes:
        lease: How long others wait if the holder dies. Default 10 s.
        on_lost: What a loss does to the body of ``with`` or ``async with``.
    """

    lease: Seconds | None
    on_lost: OnLost | None


class ElectionOptions(TypedDict, total=False):
    """The options of an election, see `WaitOptions`. What is not given comes from the ``Locker``.

    Attributes:
        lease: How long the others wait for a new leader if this one dies. Default 10 s. Observers look every third of
            it, from 1 to 10 s.
        note: What observers and operators see of this candidate while it leads, such as its address: a printable line
            of up to 120 bytes. Default: the note of the locker.
        renew: Whether the lease is renewed while the term lasts. Default ``True``.
        max_hold: The longest term, renewals included; at least the lease. Then the next candidate leads. Default: none.
        stop_before: How long before the end of its lease a leader stops that cannot renew it. At most half of the
            lease. Default: a fifth of it.
        min_hold: How long a term lasts at least, although its body ends before. At most ``max_hold``. Default 0.
        fair: ``False`` lets the candidate overtake others that have ``fair=False``, too. Default ``True``.
    """

    lease: Seconds | None
    note: str | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None


class OnceOptions(TypedDict, total=False):
    """The options of what runs once per slot of time, see `WaitOptions`. What is not given comes from the ``Locker``.

    Attributes:
        from_: When slots begin, after midnight UTC. Default 0.
        early: How much earlier than its slot a call counts for it, at most half of a slot: hosts are early and late.
            Default: 30 s, or a tenth of the slot if that is less.
        lease: How long others wait if the process of a run dies. Default 10 s.
        timeout: How long a call waits for a run of another caller. 0 never waits. Default: half of a slot.
        after_crash: ``"refuse"`` raises ``Lost`` in a slot in which a run ended without success and without a failure,
            because its process died or its lease was lost. Default: ``"repeat"``, the next caller runs.
        renew: Whether the lease is renewed while the run lasts. Default ``True``.
        max_hold: The longest run, renewals included; at least the lease. Default: none.
        stop_before: How long before the end of its lease a run that is not renewed counts as lost. Default 0.
        min_hold: How long nobody else runs after the beginning of a run that fails. At most ``max_hold``. Default 0.
        fair: ``False`` lets the call overtake waiters that have ``fair=False``, too. Default ``True``.
    """

    from_: Seconds | None
    early: Seconds | None
    lease: Seconds | None
    timeout: Seconds | None
    after_crash: AfterCrash | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None


class IdempotentOptions(TypedDict, total=False):
    """The options of what runs once for as long as its result is kept. What is not given comes from the ``Locker``.

    Attributes:
        max_size: How many bytes of JSON text a result may have, from 1 to 524,288. Default 65,536.
        lease: How long others wait if the process of a run dies. Default 10 s.
        timeout: How long a call waits for a run of another caller. 0 never waits. Default 10 s.
        after_crash: ``"refuse"`` raises ``Lost`` after a run that ended without success and without a failure, because
            its process died or its lease was lost: for as long as its result would have been kept. Default:
            ``"repeat"``, the next caller runs.
        renew: Whether the lease is renewed while the run lasts. Default ``True``.
        max_hold: The longest run, renewals included; at least the lease. Default: none.
        stop_before: How long before the end of its lease a run that is not renewed counts as lost. Default 0.
        min_hold: How long nobody else runs after the beginning of a run that fails. At most ``max_hold``. Default 0.
        fair: ``False`` lets the call overtake waiters that have ``fair=False``, too. Default ``True``.
    """

    max_size: int | None
    lease: Seconds | None
    timeout: Seconds | None
    after_crash: AfterCrash | None
    renew: bool | None
    max_hold: Seconds | None
    stop_before: Seconds | None
    min_hold: Seconds | None
    fair: bool | None


class StoreOptions(TypedDict, total=False):
    """The options of a store and of all its holds.

    Attributes:
        lease: How long others wait if a holder dies. Default 10 s.
        prefix: Precedes every key.
        key_format: How arguments are written into keys: ``"escaped"``, or ``"python"`` as the decorator of
            ``RedisLocker`` writes them.
        note: What operators see beside the holds of this process. Default: host and process id.
        command_timeout: How long to wait for the reply to one command. Default 1 s.
        tls_ca: The certificate authorities for the connection, in PEM form. Default: those of the system.
        strict: On Redis, the longest lease: after a failure nothing is granted until it is over.
        wait_replicas: On Redis, how many replicas must have a grant before it counts.
        wait_timeout: How long to wait for them.
        allow_eviction: Whether to accept a Redis that evicts keys.
    """

    lease: Seconds | None
    prefix: str
    key_format: Literal["escaped", "python"]
    note: str | None
    command_timeout: Seconds | None
    tls_ca: str | bytes | None
    strict: Seconds | None
    wait_replicas: int | None
    wait_timeout: Seconds | None
    allow_eviction: bool


class Settings(WaitOptions, StoreOptions, total=False):
    """The settings of a ``Locker``: how its calls wait by default, see `WaitOptions`, and `StoreOptions`."""


_LEADERS_LACK: Final = {
    **dict.fromkeys(("timeout", "max_retry", "retry_delay"), "a leader waits until it is elected"),
    **dict.fromkeys(("args", "key", "each", "mode"), "one caller at a time leads per name"),
    **dict.fromkeys(("release", "on_lost"), "the term ends with the body, and the body with the term"),
}
"""Options of holds that an election does not have, and why."""

_RUNS_LACK: Final = {
    **dict.fromkeys(("max_retry", "retry_delay"), "a call waits for the run of another one, up to `timeout`"),
    **dict.fromkeys(("each", "mode"), "one call runs per slot and `args`"),
    **dict.fromkeys(("release", "on_lost"), "the run ends with the body, and counts if it succeeds"),
}
"""Options of holds that a run does not have, and why."""

_KEPT_LACK: Final = {
    **_RUNS_LACK,
    **dict.fromkeys(("each", "mode"), "one call runs per `args`, and the others get its result"),
    **dict.fromkeys(("every", "from_", "early", "on_skip"), "it is an option of `once_per`"),
}
"""Options of holds and of slots that a run has not whose result is kept, and why."""


def election_options(options: ElectionOptions) -> ElectionOptions:
    """Returns the options that are given.

    Raises:
        Misused: One is for holds only.
        TypeError: One is unknown.
    """
    _refuse(options.keys() - ElectionOptions.__optional_keys__, "an election", _LEADERS_LACK)
    return options


def once_options(options: OnceOptions) -> OnceOptions:
    """Returns the options that are given.

    Raises:
        Misused: One is for holds only.
        TypeError: One is unknown.
    """
    _refuse(options.keys() - OnceOptions.__optional_keys__, "a run", _RUNS_LACK)
    return options


def idempotent_options(options: IdempotentOptions) -> IdempotentOptions:
    """Returns the options that are given.

    Raises:
        Misused: One is for holds or for slots only.
        TypeError: One is unknown.
    """
    _refuse(options.keys() - IdempotentOptions.__optional_keys__, "a run with a result", _KEPT_LACK)
    return options


def _refuse(unknown: Set[str], what: str, lacks: Mapping[str, str]) -> None:
    for name in sorted(unknown & lacks.keys()):
        raise Misused(f"{what} has no option {name}: {lacks[name]}")
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")


def check_on_expiry(asked: Mapping[str, object]) -> None:
    """Refuses options that a hold without renewals does not have.

    Raises:
        Misused: It names the option.
    """
    if asked.get("release") != "on_expiry":
        return
    for name in ("renew", "max_hold", "min_hold"):
        if asked.get(name) not in (None, False):
            raise Misused(f'{name} has no effect with release="on_expiry": the hold ends with its lease')
