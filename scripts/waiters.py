#!/usr/bin/env python3
"""Keeps calls waiting: `waiters.py <host:port> <number>`; prints how many wait, and ends with its standard input."""

import socket
import sys

address, number = sys.argv[1].rsplit(":", 1), int(sys.argv[2])
streams = []
try:
    while len(streams) < number:
        # A source address has some 28,000 ports.
        source = (f"127.0.1.{1 + len(streams) // 20000}", 0)
        stream = socket.create_connection((address[0], int(address[1])), source_address=source)
        stream.sendall(b"GET /v1/event/never%d/wait HTTP/1.1\r\nHost: localhost\r\n\r\n" % (len(streams) // 5000))
        streams.append(stream)
except OSError as error:
    print(f"# {error}", file=sys.stderr)
print(len(streams), flush=True)
sys.stdin.read()
