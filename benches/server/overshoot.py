#!/usr/bin/env python3
"""Measures how far coupled servers exceed their limit: `overshoot.py <path of locker> [servers] [slots] [limit]`.

Each server has a client that sends requests as fast as it gets answers. All servers together should answer `go` at most
`limit` (100) times per second. Needs pyzmq (scripts/setup-python.sh).
"""

import socket
import subprocess
import sys
import threading
import time

import zmq


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [f"tcp://127.0.0.1:{port}" for port in ports]


def main(locker, servers=3, slots=20, limit=100):
    servers, slots, limit = int(servers), int(slots), int(limit)
    endpoints, publish = free_ports(servers), free_ports(servers)
    command = [locker, "serve", "--http", "off", "--max-requests", str(limit), "--in-seconds", "1", "--peer", ",".join(publish)]
    processes = [
        subprocess.Popen([*command, "--zmq", endpoint, "--publish", own], stdout=subprocess.PIPE)
        for endpoint, own in zip(endpoints, publish)
    ]
    for process in processes:
        process.stdout.readline()
    time.sleep(2)  # until every subscription has arrived
    grants, end = [], time.monotonic() + slots + 0.5

    def client(endpoint):
        client = zmq.Context.instance().socket(zmq.REQ)
        client.connect(endpoint)
        while (now := time.monotonic()) < end:
            client.send_string("let me go")
            if client.recv_string() == "go":
                grants.append(now)

    threads = [threading.Thread(target=client, args=(endpoint,)) for endpoint in endpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.terminate()
        process.wait()
    grants.sort()
    counts, last = [], None
    for grant in grants:
        if last is None or grant - last > 0.3:
            counts.append(0)
        counts[-1] += 1
        last = grant
    beyond = [count - limit for count in counts]
    print(f"{servers} servers, {len(counts)} slots of {limit}: beyond on average {sum(beyond) / len(beyond):.1f}, at most {max(beyond)}")


main(*sys.argv[1:])
