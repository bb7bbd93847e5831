#!/usr/bin/env python3
"""Where the processor time of a call goes, by part of the program: a table of microseconds per call.

    benches/profile.py redis pair|admission [tasks ..]     tasks: 1 16 64
    benches/profile.py lock call|hand-off|admission

Needs `perf` and `addr2line`. It builds the benchmark with the lines of its functions and runs it below `perf`.

A sample counts for what the innermost function does if that is memory, a clock, a digest or the kernel. Otherwise it
counts for the innermost file of locker on its stack that is known, so that what the compiler or a library does for a
function counts for its file; and otherwise for the library.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# The first pattern that matches the innermost function.
BY_FUNCTION = [
    ("memory", r"malloc|free|realloc|calloc|unlink_chunk|_int_|memmove|memcpy|memset|memcmp"),
    ("clock", r"clock_gettime|quanta"),
    ("digest", r"^md5|sha1|compress"),
]
# The first pattern that matches the path of a file.
BY_FILE = [
    ("the benchmark", r"^benches/|^testing/"),
    ("key", r"^locker-core/src/key"),
    ("step of the primitive", r"^locker-core/src/primitives"),
    ("memory store", r"^locker-core/src/store"),
    ("mailboxes", r"^locker-core/src/mailboxes"),
    ("timers", r"^locker-core/src/background"),
    ("clock", r"^locker-core/src/clock"),
    ("ids", r"^locker-core/src/id"),
    ("hold and guard", r"^locker-runtime/src/(lease/(hold|guard)|private)"),
    ("renewing, self-deadlock", r"^locker-runtime/src/lease"),
    ("request and waiting loop", r"^locker-(runtime|core)"),
    ("redis: batches and writes", r"^stores/redis/src/pipeline"),
    ("redis: script calls and replies", r"^stores/redis/src/(script|codec|records)"),
    ("redis: way to the connection", r"^stores/redis"),
]
BY_LIBRARY = [("tokio, mio", r"tokio|mio::|futures"), ("the crate redis", r"redis::|combine::|bytes::")]


def first(table, text):
    return next((part for part, pattern in table if re.search(pattern, text)), None)


def build(bench):
    flags = {"CARGO_PROFILE_BENCH_DEBUG": "line-tables-only"}
    command = ["cargo", "bench", "--bench", bench, "--all-features", "--no-run"]
    built = subprocess.run(command, env=os.environ | flags, stderr=subprocess.PIPE, text=True, check=False)
    found = re.search(r"Executable .*\((.*)\)", built.stderr)
    return found[1] if found else sys.exit(built.stderr)


def samples(data):
    """Yields the thread, the weight and the stack of each sample, the innermost function first."""
    fields = "comm,period,ip,sym,dso"
    text = subprocess.run(
        ["perf", "script", "--no-inline", "-i", data, "-F", fields], capture_output=True, text=True, check=True
    ).stdout
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        head = re.match(r"\s*(\S.*?)\s+(\d+)\s*$", lines[0])
        stack = [re.match(r"\s*([0-9a-f]+) (.*) \((.*)\)$", line) for line in lines[1:]]
        if head and stack:
            yield head[1], int(head[2]), [frame.groups() for frame in stack if frame]


def shift(program):
    """Returns the distance of addresses from places in the file, which `perf` prints."""
    segments = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
    for line in segments.split("\n"):
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in words[6:8]:
            return int(words[2], 16) - int(words[1], 16)
    return 0


def files(program, places, root):
    """Returns the innermost file of locker at each place, if there is one."""
    asked = subprocess.run(
        ["addr2line", "-e", program, "-a", "-i"], input="\n".join(places), capture_output=True, text=True, check=True
    )
    found, place = {}, None
    for line in asked.stdout.split("\n"):
        if line.startswith("0x"):
            place = format(int(line, 16), "x")
        elif place and line.startswith(root):
            found.setdefault(place, line[len(root) + 1 :].split(":")[0])
    return found


def table(program, data, calls, root):
    all_samples, moved = list(samples(data)), shift(program)

    def place(stack, at):
        # The address behind a call may be of the next line.
        return format(int(stack[at][0], 16) + moved - (at > 0), "x")

    ours = {
        place(stack, at)
        for _, _, stack in all_samples
        for at, frame in enumerate(stack)
        if frame[2] == program
    }
    known = files(program, sorted(ours), root)
    used = collections.Counter()
    for thread, weight, stack in all_samples:
        side = "server" if thread.startswith("redis-server") else "callers"
        function = stack[0][1]
        if stack[0][0].startswith("ffff"):
            part = "the kernel"
        elif side == "server":
            part = "the program"
        else:
            at = (known.get(place(stack, at)) for at, frame in enumerate(stack) if frame[2] == program)
            file = next((file for file in at if file), None)
            # A call of a library that only the benchmark is around runs by itself.
            is_free = file is None or file.startswith("benches/")
            part = (
                first(BY_FUNCTION, function)
                or (is_free and first(BY_LIBRARY, function))
                or (file and first(BY_FILE, file))
                or "all else"
            )
        used[side, part] += weight
    for (side, part), weight in sorted(used.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"  {weight / calls / 1000:7.2f} us  {side}: {part}")
    print(f"  {used.total() / calls / 1000:7.2f} us  in all")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bench, what, tasks = sys.argv[1], sys.argv[2], sys.argv[3:]
    tasks = tasks or (["1", "16", "64"] if bench == "redis" else [""])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(root)
    program = build(bench)
    for many in tasks:
        with tempfile.TemporaryDirectory() as work:
            data = f"{work}/data"
            run = subprocess.run(
                ["perf", "record", "-q", "-F", "997", "--call-graph", "dwarf,8192", "-o", data, program, "--bench"],
                env=os.environ | {"LOCKER_BENCH": "profile", "LOCKER_BENCH_PROFILE": what, "LOCKER_BENCH_TASKS": many},
                capture_output=True,
                text=True,
                check=True,
            )
            print(run.stdout.strip())
            calls = int(re.search(r"(\d+) calls in", run.stdout)[1])
            table(program, data, calls, root)


if __name__ == "__main__":
    main()
