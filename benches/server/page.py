#!/usr/bin/env python3
"""Measures what the page costs: `page.py <path of locker> [store] [names] [seconds]`.

Fills a server with names (100,000 locks), opens a stream of `/live?view=names`, and prints: the time to its first rows;
the part of a core that the server takes while the stream is open; and the latency of an acquire and a release before
and while it is open. Run it for `memory://`, and for `redis://127.0.0.1:PORT` on an empty Redis.
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def connect(address):
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(method, path):
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def ask(connection, sent, answers=1):
    connection.sendall(sent)
    seen = b""
    while seen.count(b"HTTP/1.1 ") < answers or not is_complete(seen):
        seen += connection.recv(1 << 16)
    if refused := re.search(rb"HTTP/1.1 [345]\d\d[^\0]*", seen):
        raise SystemExit(refused[0].decode())


def is_complete(answers):
    head, end, body = answers[answers.rindex(b"HTTP/1.1 "):].partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)


def drain(connection):
    while connection.recv(1 << 16):
        pass


def fill(address, names):
    connection = connect(address)
    for start in range(0, names, 100):
        some = range(start, min(start + 100, names))
        paths = (f"/v1/lock/invoice-{number:06}/acquire?key=k&expires=86400000&maxwait=0" for number in some)
        ask(connection, b"".join(request("POST", path) for path in paths), len(some))


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def latencies(address, seconds):
    """The times of pairs of an acquire and a release, in microseconds: median, and 99th of 100."""
    connection, times, end = connect(address), [], time.monotonic() + seconds
    acquire, release = (request("POST", f"/v1/lock/probe/{action}?key=k") for action in ("acquire", "release"))
    while (start := time.monotonic()) < end:
        ask(connection, acquire)
        ask(connection, release)
        times.append(time.monotonic() - start)
        time.sleep(0.002)
    times.sort()
    return [1e6 * times[len(times) * part // 100] for part in (50, 99)]


def first_rows(address):
    connection, seen, start = connect(address), b"", time.monotonic()
    connection.sendall(request("GET", "/live?view=names"))
    while b"\n\n" not in seen.partition(b"event: rows")[2]:
        seen += connection.recv(1 << 16)
    return connection, 1e3 * (time.monotonic() - start)


def main(locker, store="memory://", names=100_000, seconds=60):
    names, seconds = int(names), float(seconds)
    command = [locker, "serve", "--http", "127.0.0.1:0", "--zmq", "off", "--store", store, "--max-names", str(2 * names)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        host, port = re.search(r"http://([\d.]+):(\d+)", server.stdout.readline()).groups()
        address = host, int(port)
        fill(address, names)
        before, closed = processor_time(server.pid), latencies(address, seconds)
        idle = processor_time(server.pid) - before
        stream, took = first_rows(address)
        threading.Thread(target=drain, args=(stream,), daemon=True).start()
        before, began = processor_time(server.pid), time.monotonic()
        open_ = latencies(address, seconds)
        cost = (processor_time(server.pid) - before - idle) / (time.monotonic() - began)
        print(f"{store}, {names} names: first rows after {took:.0f} ms, {100 * cost:.1f} % of a core while open")
        for name, one, other in zip(("median", "99th of 100"), closed, open_):
            print(f"  a pair of calls, {name}: {one:.0f} us, while open {other:.0f} us")
    finally:
        server.terminate()
        server.wait()


main(*sys.argv[1:])
