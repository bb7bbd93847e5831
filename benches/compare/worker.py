"""The worker of redis-py: `worker.py PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS`, as benches/compare/worker has it.

redis-py renews no lease by itself and tells of a loss at the release.
"""

import sys
import time
from pathlib import Path

import redis

STEP, ENTRIES = 0.01, 50_000


class Log:
    def __init__(self, folder, number, steps):
        self.steps, self.entries, self.stay = steps, 0, Path(folder, f"{number}.stay")
        # Without work under the lock the lines stay in memory: the time to write them would be measured, too.
        self.lines = Path(folder, f"{number}.log").open("w", buffering=1 if steps else 1 << 16)

    def write(self, event, text=""):
        text = str(text).replace("\n", " ")
        self.lines.write(f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {event} {text}\n")

    def section(self):
        self.entries += 1
        self.write("in")
        done = 0
        while done < self.steps or (self.steps and self.stay.exists()):
            time.sleep(STEP)
            self.write("work")
            done += 1
        self.write("out")


def main(_peer, url, folder, number, lease, steps, seconds):
    log, end = Log(folder, number, int(steps)), time.monotonic() + float(seconds)
    client = redis.Redis.from_url(url)
    while time.monotonic() < end and (log.steps or log.entries < ENTRIES):
        log.write("wait")
        try:
            with client.lock("hot", timeout=int(lease) / 1_000):
                log.section()
        except redis.RedisError as error:
            log.write("error", error)
            time.sleep(STEP)
    log.lines.close()


main(*sys.argv[1:])
