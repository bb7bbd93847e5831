"""Workers, the network between them and their server, and what is done to both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import judge
import peers
from judge import Fault, Line

LEASE = 3.0
"""In seconds."""
LONG = 2 * LEASE
"""How long a fault lasts."""
STEPS = 10
"""How many steps of 10 ms the work has while faults are made."""


class NobodyEnters(Exception):
    """A lock was not granted to anybody for so long that the measurement ends."""


def now() -> int:
    """Returns the time of the logs."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def eventually(condition: Callable[[], bool], within: float) -> bool:
    """Waits for a condition, and tells whether it came true."""
    end = time.monotonic() + within
    while not (result := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return result


class Network:
    """A proxy before a server. While it is cut it holds all bytes, as a network does that drops packets."""

    def __init__(self, target: int) -> None:
        self.target, self.loop = target, asyncio.new_event_loop()
        self.whole = asyncio.Event()
        self.whole.set()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        start = asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.server = asyncio.run_coroutine_threadsafe(start, self.loop).result()
        self.port = self.server.sockets[0].getsockname()[1]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.whole.wait()
        there = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self.pass_on(reader, there[1]), self.pass_on(there[0], writer))

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.whole.wait()
                writer.write(data)
                await writer.drain()
        await self.whole.wait()
        writer.close()

    def cut(self) -> None:
        self.loop.call_soon_threadsafe(self.whole.clear)

    def heal(self) -> None:
        self.loop.call_soon_threadsafe(self.whole.set)


class Worker:
    """A process that locks in a loop, or several tasks in one."""

    def __init__(self, crew: Crew, number: int, tasks: int, seconds: float) -> None:
        self.number, self.tasks, self.stay = number, tasks, crew.folder / f"{number}.stay"
        self.log, url = crew.folder / f"{number}.log", crew.url
        self.network = None
        if crew.has_networks:
            port = int(url.split(":")[2].split("/")[0])
            self.network = Network(port)
            url = url.replace(f":{port}", f":{self.network.port}")
        numbers = [number, LEASE * 1_000, crew.steps, seconds, *([tasks] if tasks > 1 else [])]
        command = [*crew.peer.program(), crew.peer.worker, url, str(crew.folder), *(f"{one:.0f}" for one in numbers)]
        with (crew.folder / f"{number}.err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors)

    def last(self) -> Line:
        """Returns the last line of the log."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 1_000))
            if lines := log.read().decode(errors="replace").splitlines(keepends=True)[1:]:
                return (judge.parse("".join(lines)) or [Line(0, "")])[-1]
        return Line(0, "")


class Crew:
    """The workers of one measurement, and what was done to them."""

    def __init__(self, peer: peers.Peer, url: str, folder: Path, steps: int, has_networks: bool) -> None:
        self.peer, self.folder, self.steps, self.has_networks = peer, folder, steps, has_networks
        scheme, rest = url.split("://")
        self.url = f"{peer.scheme or scheme}://{rest}"
        self.workers: list[Worker] = []
        self.faults: list[Fault] = []

    def start(self, seconds: float, number: int | None = None, tasks: int = 1) -> None:
        """Starts a worker."""
        self.workers.append(Worker(self, len(self.workers) if number is None else number, tasks, seconds))

    def logs(self) -> dict[int, list[Line]]:
        """Returns the logs so far."""
        return {int(log.stem): judge.parse(log.read_text()) for log in self.folder.glob("*.log")}

    def end(self) -> None:
        """Ends all workers."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()

    def pin(self) -> Worker:
        """Makes the worker that is inside stay there, and returns it."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for worker in self.workers:
                if worker.last().event not in ("in", "work"):
                    continue
                worker.stay.touch()
                # The section that goes on past its steps can only be one that has seen the file.
                since = now()
                eventually(lambda: len(self.events(worker, since)) > STEPS, 2)
                if len(events := self.events(worker, since)) > STEPS and set(events) == {"work"}:
                    return worker
                worker.stay.unlink()
            time.sleep(0.005)
        raise NobodyEnters

    def events(self, worker: Worker, since: int) -> list[str]:
        """Returns what the worker has logged."""
        return [line.event for line in judge.parse(worker.log.read_text()) if line.at > since]

    def has_entered_since(self, at: int, without: int) -> bool:
        """Tells whether another worker has entered."""
        others = [log for worker, log in self.logs().items() if worker != without]
        return any(line.event == "in" and line.at > at for log in others for line in log)

    def make(self, kind: str) -> None:
        """Does something to the worker that is inside, and waits until that is over and others have entered."""
        holder = self.pin()
        start = now()
        getattr(self, kind)(holder)
        self.faults.append(Fault(kind, holder.number, start, now() if kind in ("kill", "long") else self.healed))
        holder.stay.unlink(missing_ok=True)
        eventually(lambda: self.has_entered_since(self.faults[-1].end, holder.number), 20)
        time.sleep(1)

    def long(self, _holder: Worker) -> None:
        """No fault: the work takes longer than the lease."""
        time.sleep(LONG)

    def kill(self, holder: Worker) -> None:
        """The process dies. Another one takes its place once somebody has entered."""
        start = now()
        holder.process.send_signal(signal.SIGKILL)
        eventually(lambda: self.has_entered_since(start, holder.number), 20)
        self.start(3_600)

    def stop(self, holder: Worker) -> None:
        """The process stands still, as with a machine that is suspended, and then goes on."""
        holder.process.send_signal(signal.SIGSTOP)
        time.sleep(LONG)
        self.healed = now()
        holder.process.send_signal(signal.SIGCONT)
        time.sleep(1)

    def cut(self, holder: Worker) -> None:
        """The network of the process that is inside is cut. The process works on."""
        self.cut_off([holder])
        time.sleep(1)

    def outage(self, holder: Worker) -> None:
        """The networks of all are cut. The work ends when they are whole again."""
        self.cut_off(self.workers)
        holder.stay.unlink(missing_ok=True)

    def cut_off(self, workers: list[Worker]) -> None:
        networks = [worker.network for worker in workers if worker.network]
        for network in networks:
            network.cut()
        time.sleep(LONG)
        self.healed = now()
        for network in networks:
            network.heal()


@contextlib.contextmanager
def crew(peer: peers.Peer, steps: int, has_networks: bool = False) -> Iterator[Crew]:
    """Starts a server for workers, and ends both."""
    with tempfile.TemporaryDirectory() as folder, peers.server(peer.server) as url:
        started = Crew(peer, url, Path(folder), steps, has_networks)
        try:
            yield started
        finally:
            started.end()
