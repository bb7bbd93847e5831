"""One key, for which several parties take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

from servers import GENEROUS, Redis, eventually


class Turns:
    """Counts turns in a list on Redis. No party goes again before another one was there."""

    def __init__(self, redis: Redis, name: str, total: int) -> None:
        self.client, self.name, self.total = redis.client, name, total
        self.list, self.inside = f"turns:{name}", f"inside:{name}"
        self.failures: list[BaseException] = []

    def body(self, party: str) -> None:
        """What the parties do under the lock: fails if two of them do it at once."""
        assert self.client.set(self.inside, party, nx=True), f"{self.client.get(self.inside)} is inside, and {party}"
        self.client.rpush(self.list, party)
        self.client.delete(self.inside)

    def is_over(self) -> bool:
        return bool(self.client.llen(self.list) >= self.total)

    def _go(self, party: str, locked: Callable[[str], object]) -> None:
        try:
            while not self.is_over():
                locked(party)
                eventually(lambda: self.is_over() or self.client.lindex(self.list, -1) != party, "another's turn")
        except BaseException as error:
            self.failures.append(error)
            self.client.rpush(self.list, *["failed"] * self.total)

    def take(self, parties: dict[str, Callable[[str], object]]) -> None:
        """Lets each party call what locks the body, until there are enough turns."""
        threads = [threading.Thread(target=self._go, args=item) for item in parties.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GENEROUS)
        assert self.failures == []

    def alternations(self) -> dict[tuple[str, str], int]:
        """Returns how often which party came after which other one."""
        found: dict[tuple[str, str], int] = {}
        for pair in pairwise(map(str, self.client.lrange(self.list, 0, self.total - 1))):
            found[pair] = found.get(pair, 0) + 1
        return found
