"""Takes turns with a function of the same name in another language.

    bank.py PORT TURNS CARD..

For every card one thread runs `withdraw` TURNS times, each time while the other side wants in as well.
"""

import os
import sys
import threading
import time

import redis

from redis_locker import RedisLocker

port, turns, cards = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
server = redis.Redis(port=port, decode_responses=True)
locker = RedisLocker(server, max_retry=100_000, retry_delay=0.001, timeout=60)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the other side never came")
        time.sleep(0.001)


def withdraw(card, amount, last):
    if not server.set(f"inside:{card}", "python", nx=True):
        print(f"overlap: {server.get('inside:' + card)} is inside with {card}", flush=True)
    server.rpush(f"turns:{card}", "python")
    server.delete(f"trying:python:{card}")
    if not last:
        until(lambda: server.exists(f"trying:rust:{card}"))
    server.delete(f"inside:{card}")


# The module's name is part of the key.
withdraw.__module__ = "bank"
withdraw = locker.lock_on_argument(30, 0, 1)(withdraw)


def take_turns(card):
    try:
        for turn in range(turns):
            server.set(f"trying:python:{card}", 1)
            withdraw(card, 100, turn + 1 == turns)
            until(lambda: server.lindex(f"turns:{card}", -1) == "rust" or turn + 1 == turns)
    except Exception as error:
        print(f"failed: {error!r}", flush=True)
        os._exit(1)


threads = [threading.Thread(target=take_turns, args=(card,)) for card in cards]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", flush=True)
