#!/usr/bin/env python3
"""Measures the time without a leader: `lead.py <path of locker> <rounds> <store>...`.

Two processes of `locker lead` with a lease of 3 s wait for one name. In each round the leader's term ends in one of
three ways: its command ends (it steps down), `locker lead` gets SIGTERM, or `locker lead` and its command get SIGKILL.
Prints the times from there to the first line of the next leader's command: median, and least to most.
"""

import os
import signal
import statistics
import subprocess
import sys
import time

LEASE = 3
COMMAND = ("sh", "-c", "echo $$; exec sleep 1000")


class Candidate:
    def __init__(self, locker, store, name):
        line = (locker, "lead", "--lease", f"{LEASE}s", "--store", store, name, "--", *COMMAND)
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def elected(self):
        """Waits for the first line of the command, which is its process."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a candidate ended with {self.process.wait()}")
        return int(line), time.monotonic()

    def end(self, way, command):
        """Ends the term, and returns when."""
        ended = time.monotonic()
        if way == "step down":
            os.kill(command, signal.SIGTERM)
        elif way == "SIGTERM":
            self.process.terminate()
        else:
            self.process.kill()
            os.kill(command, signal.SIGKILL)
        return ended


def waits(locker, store, name):
    line = (locker, "ls", "--json", "--kind", "leader", "--name-prefix", name, "--store", store)
    return '"waiting":1' in subprocess.check_output(line, text=True).replace(" ", "")


def measure(locker, store, way, rounds):
    name, times = f"bench {os.getpid()} {way}", []
    leader = Candidate(locker, store, name)
    command, _ = leader.elected()
    for _ in range(rounds):
        other = Candidate(locker, store, name)
        while not waits(locker, store, name):
            pass
        ended = leader.end(way, command)
        command, started = other.elected()
        leader.process.wait()
        times.append(started - ended)
        leader = other
    leader.process.terminate()
    leader.process.wait()
    return times


def main(locker, rounds, *stores):
    for store in stores:
        for way in ("step down", "SIGTERM", "SIGKILL"):
            times = [1000 * taken for taken in measure(locker, store, way, int(rounds))]
            low, high = min(times), max(times)
            print(f"{store.split('?')[0]:40} {way:10} {statistics.median(times):6.0f} ms  {low:.0f} to {high:.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
