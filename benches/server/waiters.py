#!/usr/bin/env python3
"""Keeps calls waiting: `waiters.py <host:port> <number>`. Prints the number of waiting calls and ends with its standard
input."""

import socket
import sys

IP_BIND_ADDRESS_NO_PORT = 24

address, number = sys.argv[1].rsplit(":", 1), int(sys.argv[2])
streams = []
try:
    while len(streams) < number:
        stream = socket.socket()
        # A source address has some 28,000 ports. The kernel chooses the port when the destination is known.
        stream.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        stream.bind((f"127.0.1.{1 + len(streams) // 10000}", 0))
        stream.connect((address[0], int(address[1])))
        stream.sendall(b"GET /v1/event/never%d/wait HTTP/1.1\r\nHost: localhost\r\n\r\n" % (len(streams) // 5000))
        streams.append(stream)
except OSError as error:
    print(f"# {error}", file=sys.stderr)
print(len(streams), flush=True)
sys.stdin.read()
