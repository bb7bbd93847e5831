#!/usr/bin/env python3
"""Shows whether a release of ZooKeeper loses acknowledged writes when servers are killed one after the other.

    scripts/zookeeper-loss.py [CLASS PATH [ROUNDS]]

Nothing of this project takes part: the client is kazoo (Debian: python3-kazoo). In each round one of three servers
misses 200 writes. It comes back while the leader is dead, and is killed with the new leader as soon as it has taken the
new epoch. Then it meets the former leader, which has all writes. A release with ZOOKEEPER-4643 or ZOOKEEPER-4646 takes
the epoch before the writes are in its log, so the server without them is elected. Ends with 1 if a write was lost.
"""

import logging
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from kazoo.client import KazooClient

WRITES = 200


class Server:
    def __init__(self, folder, number, ports):
        self.folder, self.client, self.process = folder / str(number), ports[number][0], None
        self.folder.mkdir()
        (self.folder / "myid").write_text(str(number))
        members = "".join(f"server.{i}=127.0.0.1:{peer}:{vote}\n" for i, (_, peer, vote) in enumerate(ports))
        self.settings = folder / f"{number}.cfg"
        self.settings.write_text(
            f"tickTime=500\ninitLimit=20\nsyncLimit=5\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n"
            f"dataDir={self.folder}\nclientPort={self.client}\nclientPortAddress=127.0.0.1\n{members}"
        )

    def start(self):
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", CLASS_PATH]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        log = self.settings.with_suffix(".log").open("ab")
        self.process = subprocess.Popen([*command, main, self.settings], stdout=log, stderr=log)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def said(self):
        try:
            with socket.create_connection(("127.0.0.1", self.client), 1) as stream:
                stream.sendall(b"srvr")
                return b"".join(iter(lambda: stream.recv(4096), b"")).decode()
        except OSError:
            return ""

    def mode(self):
        return next((line[6:] for line in self.said().splitlines() if line.startswith("Mode: ")), None)

    def epoch(self):
        try:
            return int((self.folder / "version-2" / "currentEpoch").read_text() or 0)
        except (OSError, ValueError):
            return 0


def until(what, seconds=60, pause=0.05):
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            sys.exit("the servers do not answer")
        time.sleep(pause)
    return found


def client(servers):
    zk = KazooClient(",".join(f"127.0.0.1:{server.client}" for server in servers), timeout=10)
    zk.start(timeout=60)
    return zk


def lost_in_a_round(servers):
    for server in servers:
        if not server.process:
            server.start()
    until(lambda: all(server.mode() for server in servers))
    leader = next(server for server in servers if server.mode() == "leader")
    late, other = random.sample([server for server in servers if server is not leader], 2)

    zk = client([leader, other])
    zk.ensure_path("/counter")
    zk.set("/counter", b"0")
    zk.sync("/counter")
    until(lambda: zk.get("/counter")[0] == b"0")
    late.kill()
    for write in range(1, WRITES + 1):
        zk.set("/counter", str(write).encode())
    # What the counter is now has been acknowledged by two of three servers.
    zk.stop()
    zk.close()

    epoch = late.epoch()
    leader.kill()
    late.start()
    until(lambda: late.epoch() > epoch, pause=0.0002)
    late.kill()
    other.kill()

    late.start()
    leader.start()
    until(lambda: late.mode() and leader.mode())
    zk = client([late, leader])
    zk.sync("/counter")
    kept = int(zk.get("/counter")[0])
    zk.stop()
    zk.close()
    return WRITES - kept


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="zookeeper-loss-"))
    sockets = [[socket.create_server(("127.0.0.1", 0)) for _ in range(3)] for _ in range(3)]
    ports = [[each.getsockname()[1] for each in three] for three in sockets]
    for three in sockets:
        for each in three:
            each.close()
    servers = [Server(folder, number, ports) for number in range(3)]
    losses = 0
    try:
        for number in range(1, ROUNDS + 1):
            lost = lost_in_a_round(servers)
            losses += lost > 0
            release = servers[0].said() if servers[0].process else servers[1].said()
            if number == 1:
                print(next((line for line in release.splitlines() if "version" in line), "?"), flush=True)
            print(f"round {number}: {lost} of {WRITES} writes lost", flush=True)
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"acknowledged writes were lost in {losses} of {ROUNDS} rounds")
    return losses > 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        sys.exit()
    CLASS_PATH = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/java/zookeeper.jar"
    ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    logging.disable()
    sys.exit(main())
