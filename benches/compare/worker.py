"""The workers in Python: `worker.py PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS`, as benches/compare/worker has it."""

import sys
import time
from pathlib import Path

STEP, ENTRIES = 0.01, 50_000


class Log:
    def __init__(self, folder, number, steps):
        self.steps, self.entries, self.stay = steps, 0, Path(folder, f"{number}.stay")
        # Without work under the lock the lines stay in memory: the time to write them would be measured, too.
        self.lines = Path(folder, f"{number}.log").open("w", buffering=1 if steps else 1 << 16)

    def write(self, event, text=""):
        text = str(text).replace("\n", " ")
        self.lines.write(f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {event} {text}\n")

    def section(self, is_held=lambda: True):
        self.entries += 1
        self.write("in")
        done = 0
        while done < self.steps or (self.steps and self.stay.exists()):
            time.sleep(STEP)
            if not is_held():
                self.write("lost")
                return
            self.write("work")
            done += 1
        self.write("out")


def redis_py(url, lease):
    """redis-py renews no lease by itself and tells of a loss at the release."""
    import redis

    client = redis.Redis.from_url(url)

    def turn(log):
        with client.lock("hot", timeout=lease):
            log.section()

    return turn, redis.RedisError


def kazoo(url, lease):
    """The session is what ends; as its documentation asks, a lock counts as lost once the connection is suspended."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=url.split("://")[1], timeout=lease)
    client.start()
    states = [client.state]
    client.add_listener(states.append)

    def turn(log):
        with client.Lock("/hot"):
            since = len(states)
            log.section(lambda: len(states) == since)

    return turn, Exception


PEERS = {"redis-py": redis_py, "kazoo": kazoo}


def main(peer, url, folder, number, lease, steps, seconds):
    log, end = Log(folder, number, int(steps)), time.monotonic() + float(seconds)
    turn, failures = PEERS[peer](url, int(lease) / 1_000)
    while time.monotonic() < end and (log.steps or log.entries < ENTRIES):
        log.write("wait")
        try:
            turn(log)
        except failures as error:
            log.write("error", f"{type(error).__name__} {error}")
            time.sleep(STEP)
    log.lines.close()


main(*sys.argv[1:])
