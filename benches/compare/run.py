#!/usr/bin/env python3
"""Runs locks of other projects beside those of locker under the same faults, and prints what happened in Markdown.

Four workers want one lock with a lease of 3 s. Servers and workers run on this machine, the servers fresh for each
measurement. Needs Python 3.11, cargo, redis-server, etcd, PostgreSQL, MariaDB and ZooKeeper; Node.js with npm for two
of the peers, a JDK and Debian's Curator for one. Installs redis-py, kazoo and the packages for Node.js into
`target`. docs/explanation/compare.md explains the columns.

    benches/compare/run.py                      # everything, about 30 minutes
    benches/compare/run.py --peers redis --fault kill --seconds 10
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import judge
import peers
from judge import MS

WORKERS = 4
FAULTS = ["none", "long", "kill", "stop", "cut", "outage"]
TITLES = {
    "long": "The work takes 6 s, twice the lease, without a fault",
    "kill": "The process inside is killed",
    "stop": "The process inside is stopped for 6 s, and goes on",
    "cut": "The network of the process inside is cut for 6 s",
    "outage": "The networks of all are cut for 6 s",
}


def say(text: str) -> None:
    """Reports progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass
class Table:
    """A table, whose notes are printed below it."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, peer: str, cells: Callable[[], list[str]]) -> None:
        """Adds the row of a peer, or why there is none."""
        say(f"{self.title.split(',')[0]}: {peer}")
        try:
            self.rows.append([peer, *cells()])
        except peers.Missing as reason:
            self.notes.append(f"skipped: {peer}: {reason}")

    def note(self, peer: str, errors: list[str]) -> None:
        """Notes the errors that callers got, those that differ in numbers only once."""
        kinds = {"".join("0" if c.isdigit() else c for c in error): error for error in errors}
        self.notes += [f"{peer}: {error[:160]}" for error in list(kinds.values())[:3]]

    def show(self) -> None:
        """Prints the table."""
        print(f"\n## {self.title}\n")
        for row in [self.columns, ["---"] * len(self.columns), *self.rows]:
            print(f"| {' | '.join(row)} |")
        if self.notes:
            print("\n" + "\n".join(f"- {note}" for note in self.notes))
        sys.stdout.flush()


def seconds(nanos: int | None) -> str:
    """Returns a time for a cell."""
    return "never" if nanos is None else f"{nanos / 1e9:.1f}"


def spread(values: Iterable[int | None]) -> str:
    """Returns the times of all rounds."""
    texts = [seconds(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else "; ".join(texts)


def collisions(found: list[judge.Overlap], made: list[judge.Fault]) -> str:
    """Returns in how many rounds there were overlaps, and how many steps holders did while another was inside."""
    if not found:
        return "0"
    rounds = f"{judge.hit(made, found)} of {len(made)}" if made else str(len(found))
    return f"**{rounds}**, {sum(one.steps for one in found)} steps"


def calm(peer: peers.Peer, duration: float, steps: int) -> judge.Logs:
    """Returns the logs of workers that nothing disturbs."""
    import faults

    with faults.crew(peer, steps) as crew:
        if peer.server == "none":
            crew.start(duration, tasks=WORKERS)
        else:
            for _ in range(WORKERS):
                crew.start(duration)
        end = time.monotonic() + duration + 20
        for worker in crew.workers:
            try:
                worker.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                say(f"a worker did not end: {(crew.folder / f'{worker.number}.err').read_text()[-300:]}")
        return crew.logs()


def calm_cells(peer: peers.Peer, duration: float, table: Table) -> list[str]:
    """Returns the row of a peer without faults: a third of the time without work under the lock, then with 20 ms."""
    hot, paced = calm(peer, duration / 3, 0), calm(peer, duration * 2 / 3, 2)
    found = judge.overlaps(hot) + judge.overlaps(paced)
    gaps, waits = judge.gaps(paced), [wait.until - wait.since for wait in judge.waits(paced)]
    errors = judge.errors(hot) + judge.errors(paced)
    table.note(peer.name, errors)
    return [
        f"{judge.throughput(hot):,.0f}",
        f"{judge.throughput(paced):.0f}",
        " / ".join(f"{judge.quantile(gaps, share) / MS:.1f}" for share in (0.5, 0.99, 1)),
        f"{judge.overtaking(paced):.0%}",
        f"{max(waits, default=0) / MS:,.0f}",
        collisions(found, []),
        judge.fences(paced),
        str(len(errors)),
    ]


def fault_cells(peer: peers.Peer, kind: str, duration: float, table: Table) -> list[str]:
    """Returns the row of a peer with a fault, which is made as often as the time allows."""
    import faults

    if peer.server == "none":
        return ["-"] * 5
    with faults.crew(peer, faults.STEPS, kind in ("cut", "outage")) as crew:
        for _ in range(WORKERS):
            crew.start(3_600)
        end = time.monotonic() + duration
        try:
            while time.monotonic() < end:
                crew.make(kind)
        except faults.NobodyEnters:
            table.notes.append(f"{peer.name}: nobody stayed inside for 0.1 s within 30 s")
        logs, made = crew.logs(), crew.faults
    errors = judge.errors(logs)
    table.note(peer.name, errors)
    starts = [fault.end if kind == "outage" else fault.start for fault in made]
    entries = [judge.next_entry(logs, fault, start) for fault, start in zip(made, starts)]
    return [
        str(len(made)),
        collisions(judge.overlaps(logs, made), made),
        spread(entries),
        "-" if kind == "kill" else spread(judge.learned(logs, fault) for fault in made),
        str(len(errors)),
    ]


def limit_rows(duration: float) -> list[list[str]]:
    """Returns the rows of the limiters."""
    rows = []
    for line in peers.output(*peers.rust(), "limits", f"{duration:.0f}").splitlines():
        name, calls, moments = line.split(";")
        admitted = [int(at) for at in moments.split()]
        beyond = judge.most_in_window(admitted, 1_000 * MS) - 1_000
        rows.append([name, f"{int(calls):,}", f"{len(admitted):,}", str(max(0, beyond))])
    return rows


def header(chosen: list[peers.Peer]) -> None:
    """Prints what was run."""
    day = datetime.datetime.now(datetime.UTC).date()
    print(f"`benches/compare/run.py {' '.join(sys.argv[1:])}`".replace(" `", "`"), f"at {peers.commit()}, {day}.\n")
    versions = [peer.version() for peer in chosen]
    for version in [*dict.fromkeys(versions), *peers.server_versions()]:
        print(f"- {version}")


def compare(chosen: list[peers.Peer], kinds: list[str], duration: float) -> None:
    """Runs and prints everything."""
    if "none" in kinds:
        columns = ["peer", "entries/s", "with 20 ms of work", "gap p50 / p99 / max, ms", "overtaking"]
        columns += ["longest wait, ms", "overlaps", "fences", "errors"]
        table = Table("Nothing is disturbed", columns)
        for peer in chosen:
            table.add(peer.name, lambda: calm_cells(peer, duration, table))
        table.show()
    for kind in (kind for kind in kinds if kind != "none"):
        after = "whole network" if kind == "outage" else "fault"
        columns = ["peer", "rounds", "overlaps", f"{after} to entry of another, s", "holder learns after, s", "errors"]
        table = Table(TITLES[kind], columns)
        for peer in chosen:
            table.add(peer.name, lambda: fault_cells(peer, kind, duration, table))
        table.show()


def available(peer: peers.Peer) -> bool:
    """Tells whether a peer can run, and prints why not."""
    try:
        peer.program()
    except peers.Missing as reason:
        print(f"skipped: {peer.name}: {reason}\n")
        return False
    return True


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="how long each cell is measured (20)")
    parser.add_argument("--peers", default="", help="words, separated by commas: only peers whose name has one of them")
    parser.add_argument("--fault", choices=[*FAULTS, "all"], default="all", help="which table (all)")
    parser.add_argument("--no-limits", action="store_true", help="leave the limiters out")
    options = parser.parse_args()
    peers.into_venv()
    peers.build_rust()
    words = options.peers.split(",")
    chosen = [peer for peer in peers.PEERS if any(word in peer.name for word in words) and available(peer)]
    header(chosen)
    compare(chosen, FAULTS if options.fault == "all" else [options.fault], options.seconds)
    if not options.no_limits and options.fault in ("all", "none"):
        duration = max(1, options.seconds // 4)
        columns = ["limiter of 1,000/s", "calls/s", f"admitted in {duration:.0f} s", "beyond 1,000 in the worst second"]
        Table("Limiters, four threads", columns, limit_rows(duration)).show()


if __name__ == "__main__":
    main()
