"""Judges the logs of workers: who was inside when, who overtook whom, and how long nobody was inside.

A line of a log has nanoseconds of `CLOCK_BOOTTIME`, an event and a text:

- `wait`: the worker asks for the lock. `error`: that failed, or the release did.
- `in`: it has the lock; the text is the fence. `work`: it still believes that it has it, and does a step of its work.
- `out`: the work is done, and the release begins. `lost`: the library told the worker that it has lost the lock.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MS = 1_000_000
TOLERANCE = 5 * MS
"""How much earlier than another a waiter must have asked to count as overtaken: what is between line and request."""


@dataclass(frozen=True)
class Line:
    """A line of a log."""

    at: int
    event: str
    text: str = ""


@dataclass(frozen=True)
class Fault:
    """What was done to a worker, or to all workers (`worker` is the one inside), and when."""

    kind: str
    worker: int
    start: int
    end: int


@dataclass
class Section:
    """A time inside: every moment at which the worker believed that it had the lock."""

    worker: int
    fence: str
    moments: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Overlap:
    """A time in which two workers believed that they had the lock."""

    start: int
    end: int
    workers: tuple[int, int]
    """The one that entered first, and the other."""
    steps: int
    """How often the first one went on during that time."""


Logs = Mapping[int, Sequence[Line]]


def parse(text: str) -> list[Line]:
    """Returns the lines of a log. The last one of a killed worker may be a part."""
    lines = []
    for line in text.splitlines(keepends=True):
        at, event, *rest = line.rstrip("\n").split(" ", 2) if line.endswith("\n") else ("", "")
        if event:
            lines.append(Line(int(at), event, "".join(rest)))
    return lines


def sections(logs: Logs) -> list[Section]:
    """Returns all times inside, in the order of entry."""
    found = []
    for worker, lines in logs.items():
        inside = None
        for line in lines:
            if line.event == "in":
                inside = Section(worker, line.text)
                found.append(inside)
            if inside and line.event in ("in", "work", "out"):
                inside.moments.append(line.at)
            if line.event in ("out", "lost", "wait"):
                inside = None
    return sorted(found, key=lambda section: section.moments[0])


def beliefs(section: Section, faults: Iterable[Fault]) -> list[list[int]]:
    """Returns the times in which the worker believed that it had the lock. A stopped process believes nothing."""
    ends = [fault.end for fault in faults if fault.kind == "stop" and fault.worker == section.worker]
    parts = [section.moments[:1]]
    for moment in section.moments[1:]:
        if any(parts[-1][-1] < end <= moment for end in ends):
            parts.append([])
        parts[-1].append(moment)
    return parts


def overlaps(logs: Logs, faults: Iterable[Fault] = ()) -> list[Overlap]:
    """Returns all overlaps of two workers, in the order of their beginning."""
    faults = list(faults)
    entered = [(one.moments[0], one.worker, part) for one in sections(logs) for part in beliefs(one, faults)]
    found: list[Overlap] = []
    inside: list[tuple[int, int, list[int]]] = []
    for one in sorted(entered, key=lambda entry: entry[2][0]):
        inside = [other for other in inside if other[2][-1] >= one[2][0]]
        found += [overlap(*sorted((one, other))) for other in inside if other[1] != one[1]]
        inside.append(one)
    return found


def overlap(first: tuple[int, int, list[int]], other: tuple[int, int, list[int]]) -> Overlap:
    """Returns the overlap of two workers, of which the first one entered earlier."""
    start, end = max(first[2][0], other[2][0]), min(first[2][-1], other[2][-1])
    return Overlap(start, end, (first[1], other[1]), sum(start <= moment <= end for moment in first[2]))


def hit(faults: Sequence[Fault], found: Iterable[Overlap]) -> int:
    """Returns after how many of the faults there was an overlap before the next fault."""
    starts = [fault.start for fault in faults]
    return len({bisect.bisect(starts, one.start) for one in found} - {0})


def gaps(logs: Logs) -> list[int]:
    """Returns the times, in nanoseconds, from each end of the work to the next entry. Others wait all the time."""
    moments = [one.moments for one in sections(logs)]
    return [next[0] - now[-1] for now, next in zip(moments, moments[1:])]


@dataclass(frozen=True)
class Wait:
    """The wait of a worker for its next entry. A worker that got an error waits on."""

    since: int
    worker: int
    entered: int | None
    until: int
    """When it entered, or the end of all logs."""


def waits(logs: Logs) -> list[Wait]:
    """Returns all waits, those without an entry included."""
    found = []
    end = max((line.at for lines in logs.values() for line in lines), default=0)
    for worker, lines in logs.items():
        since = None
        for line in lines:
            if line.event == "wait" and since is None:
                since = line.at
            elif line.event == "in" and since is not None:
                found.append(Wait(since, worker, line.at, line.at))
                since = None
        if since is not None:
            found.append(Wait(since, worker, None, end))
    return found


def overtaking(logs: Logs) -> float:
    """Returns the share of entries that passed a worker that had waited for longer."""
    pending = sorted(waits(logs), key=lambda wait: wait.since)
    entries = sorted((wait for wait in pending if wait.entered is not None), key=lambda wait: wait.until)
    passed = 0
    for wait in entries:
        passed += pending[0].since + TOLERANCE < wait.since
        pending.remove(wait)
    return passed / len(entries) if entries else 0.0


def throughput(logs: Logs) -> float:
    """Returns the entries per second from when all workers were there until the first of them had ended."""
    if not logs or not all(logs.values()):
        return 0.0
    start, end = max(lines[0].at for lines in logs.values()), min(lines[-1].at for lines in logs.values())
    entries = sum(line.event == "in" and start <= line.at <= end for lines in logs.values() for line in lines)
    return entries * 1e9 / (end - start) if end > start else 0.0


def fences(logs: Logs) -> str:
    """Tells whether the fences rise from entry to entry."""
    numbers = [int(one.fence) for one in sections(logs) if one.fence]
    if not numbers:
        return "none"
    return "rise" if all(low < high for low, high in zip(numbers, numbers[1:])) else "DO NOT RISE"


def next_entry(logs: Logs, fault: Fault, after: int) -> int | None:
    """Returns how many nanoseconds after `after` another worker than that of the fault entered."""
    others = [lines for worker, lines in logs.items() if worker != fault.worker]
    entries = [line.at for lines in others for line in lines if line.event == "in"]
    return min((at - after for at in entries if at > after), default=None)


def learned(logs: Logs, fault: Fault) -> int | None:
    """Returns how many nanoseconds after the fault its worker was told of the loss, before it asked again."""
    for line in logs[fault.worker]:
        if line.at > fault.start and line.event in ("lost", "error"):
            return line.at - fault.start
        if line.at > fault.start and line.event == "wait":
            return None
    return None


def errors(logs: Logs) -> list[str]:
    """Returns the texts of all errors that callers got."""
    return [line.text for lines in logs.values() for line in lines if line.event == "error"]


def most_in_window(moments: Iterable[int], window: int) -> int:
    """Returns the most moments in any half-open window of so many nanoseconds."""
    ordered, first, most = sorted(moments), 0, 0
    for number, at in enumerate(ordered):
        while at - ordered[first] >= window:
            first += 1
        most = max(most, number - first + 1)
    return most


def quantile(values: Sequence[int], share: float) -> float:
    """Returns the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
