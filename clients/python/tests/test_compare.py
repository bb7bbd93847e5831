"""The judge of benches/compare, on logs written by hand."""

from __future__ import annotations

import judge
import pytest
from judge import Fault, Line


def log(*lines: str) -> list[Line]:
    """Returns a log whose times are in milliseconds."""
    lines_of_nanos = [f"{line.split(' ', 1)[0]}000000 {line.split(' ', 1)[1]}\n" for line in lines]
    return judge.parse("".join(lines_of_nanos))


def test_part_of_a_line_is_left_out() -> None:
    assert judge.parse("1 in 7\n2 error no reply\n3 wo") == [Line(1, "in", "7"), Line(2, "error", "no reply")]


def test_turns_do_not_overlap() -> None:
    logs = {0: log("0 wait", "1 in 1", "11 work", "12 out"), 1: log("0 wait", "13 in 2", "23 work", "24 out")}
    assert judge.overlaps(logs) == []
    assert judge.gaps(logs) == [judge.MS]
    assert judge.fences(logs) == "rise"


def test_late_holder_overlaps() -> None:
    logs = {0: log("1 in", "11 work", "21 work", "31 work", "32 out"), 1: log("12 in", "22 work", "25 out")}
    assert [(one.workers, one.steps) for one in judge.overlaps(logs)] == [((0, 1), 1)]


def test_work_within_another_section_overlaps() -> None:
    logs = {0: log("1 in", "100 out"), 1: log("50 in", "51 out"), 2: log("60 in", "61 out")}
    assert [one.workers for one in judge.overlaps(logs)] == [(0, 1), (0, 2)]


@pytest.mark.parametrize(("after", "steps"), [("201 lost", []), ("201 work", [1])])
def test_stopped_holder_overlaps_only_if_it_works_on(after: str, steps: list[int]) -> None:
    logs = {0: log("1 in", "11 work", after, "300 wait"), 1: log("100 in", "110 work", "210 out")}
    stop = Fault("stop", 0, 12 * judge.MS, 200 * judge.MS)
    found = judge.overlaps(logs, [stop])
    assert [one.steps for one in found] == steps
    assert judge.hit([stop], found) == len(steps)


def test_overlaps_count_for_the_fault_before_them() -> None:
    logs = {0: log("1 in", "30 work", "101 in", "130 work"), 1: log("20 in", "25 out", "120 in", "125 out")}
    faults = [Fault("cut", 0, at * judge.MS, (at + 5) * judge.MS) for at in (10, 50, 110)]
    assert judge.hit(faults, judge.overlaps(logs)) == 2


def test_waiter_that_came_later_overtakes() -> None:
    first = log("0 wait", "10 error no", "11 wait", "90 in")
    assert judge.overtaking({0: first, 1: log("20 wait", "40 in")}) == 0.5
    assert judge.overtaking({0: first, 1: log("20 wait", "95 in")}) == 0.0
    assert judge.overtaking({0: first, 1: log("4 wait", "40 in")}) == 0.0, "within the tolerance"
    assert judge.waits({0: first}) == [judge.Wait(0, 0, 90 * judge.MS, 90 * judge.MS)]


def test_waiter_that_never_enters_is_overtaken() -> None:
    assert judge.overtaking({0: log("0 wait"), 1: log("20 wait", "40 in")}) == 1.0


def test_throughput_counts_while_all_are_there() -> None:
    logs = {0: log("0 wait", "100 in", "600 in", "1100 out"), 1: log("100 wait", "200 in", "1300 out")}
    assert judge.throughput(logs) == pytest.approx(3.0)
    assert judge.throughput({0: log("0 wait", "1 in"), 1: []}) == 0.0


def test_entry_and_loss_count_from_the_fault() -> None:
    logs = {0: log("1 in", "70 lost", "71 wait"), 1: log("5 in", "60 in")}
    fault = Fault("cut", 0, 10 * judge.MS, 90 * judge.MS)
    assert judge.next_entry(logs, fault, fault.start) == 50 * judge.MS
    assert judge.learned(logs, fault) == 60 * judge.MS
    assert judge.next_entry(logs, fault, fault.end) is None
    assert judge.learned({0: log("1 in", "70 out", "71 wait", "80 error no")}, fault) is None


def test_fences_that_fall_are_seen() -> None:
    assert judge.fences({0: log("1 in 5", "2 out"), 1: log("3 in 5", "4 out")}) == "DO NOT RISE"
    assert judge.fences({0: log("1 in", "2 out")}) == "none"


def test_worst_window_is_found() -> None:
    assert judge.most_in_window([0, 50, 99, 100, 149], 100) == 4
    assert judge.most_in_window([], 100) == 0
