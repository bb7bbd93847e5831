"""Clients of the ZeroMQ side, with pyzmq: `clients.py <what> <endpoint> [<pid of the server>]`.

Each function is one fact; a failed assertion ends the program with its traceback. What has to happen meanwhile is
asked for with `ask`: a line goes out, a line comes back.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import zmq

TIMEOUT = 30_000
context = zmq.Context()
context.max_sockets = 2000


def connect(kind, endpoint, **options):
    client = context.socket(kind)
    client.linger = 0
    client.rcvtimeo = TIMEOUT
    for name, value in options.items():
        client.setsockopt(getattr(zmq, name), value)
    client.connect(endpoint)
    return client


def ask(what):
    print(what, flush=True)
    return sys.stdin.readline().strip()


def request(client, text):
    client.send_string(text)
    return [frame.decode() for frame in client.recv_multipart()]


def call(dealer, text):
    dealer.send_multipart([b"", text.encode()])


def is_served(endpoint):
    client = connect(zmq.REQ, endpoint)
    assert request(client, "let me go")[0] in ("go", "sorry")
    client.close()


def runs_are_for_http(endpoint):
    client = connect(zmq.REQ, endpoint)
    status, body = request(client, "/v1/once/a/begin?keep=1000")
    assert status == "400", body
    print(body)
    client.close()


def every_primitive_answers(endpoint):
    client = connect(zmq.REQ, endpoint)
    key = "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1"
    for text, status, body in [
        ("/v1/lock/l/acquire?key=a", "200", "a"),
        ("POST /v1/lock/l/acquire?key=b&maxwait=0", "408", "maxwait was exceeded"),
        ("/v1/lock/l/renew?key=a", "204", ""),
        ("/v1/lock/l/release?key=a", "204", ""),
        (f"/v1/lock/by-key/{key}/acquire?key=a", "200", "a"),
        (f"DELETE /v1/lock/by-key/{key}", "204", ""),
        ("/v1/rwlock/r/acquire?mode=read&key=a", "200", "a"),
        ("/v1/leader/n/acquire?key=a", "200", "a"),
        ("/v1/leader/n/acquire?key=b&maxwait=0", "408", "maxwait was exceeded"),
        ("/v1/leader/n/release?key=a", "204", ""),
        ("/v1/barrier/b/wait?size=1", "204", ""),
        ("/v1/latch/l/countdown?size=2", "200", "1"),
        ("/v1/counter/c/count?amount=-3", "200", "-3"),
        ("/v1/counter/c/value", "200", "-3"),
        ("DELETE /v1/counter/c", "204", ""),
    ]:
        assert request(client, text) == [status, body], text
    status, body = request(client, "/v1/barrier/b/stats")
    assert status == "200" and '"triggered":1' in body, body
    client.close()


def raw(endpoint):
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    stream = socket.create_connection((host, int(port)))
    stream.settimeout(TIMEOUT / 1000)
    return stream


def is_closed(stream):
    try:
        while stream.recv(65536):
            pass
    except ConnectionError:
        pass
    stream.close()


def shaken(endpoint, kind=b"DEALER"):
    """A TCP connection after a handshake by hand."""
    stream = raw(endpoint)
    stream.sendall(b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    greeting = b""
    while len(greeting) < 64:
        greeting += stream.recv(64 - len(greeting))
    ready = b"\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    stream.sendall(b"\x04" + bytes([len(ready)]) + ready)
    return stream


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def starts_before_the_server(endpoint):
    client = connect(zmq.REQ, endpoint)
    client.send_string("let me go")
    ask("sent")
    assert client.recv_string() == "go"


def outlives_a_killed_server(endpoint):
    idle, waiting, plain = (connect(zmq.REQ, endpoint) for _ in range(3))
    relaxed = connect(zmq.REQ, endpoint, REQ_RELAXED=1, REQ_CORRELATE=1)
    assert request(idle, "let me go")[0] in ("go", "sorry")
    for client in (waiting, plain, relaxed):
        client.send_string("/v1/event/never/wait")
    ask("waiting")
    assert request(idle, "let me go")[0] in ("go", "sorry"), "an idle socket goes on"
    assert request(relaxed, "let me go")[0] in ("go", "sorry"), "a relaxed one too"
    try:
        plain.send_string("let me go")
        raise AssertionError("a plain REQ socket that lost its reply cannot go on")
    except zmq.ZMQError as error:
        assert error.errno == zmq.EFSM
    plain.close()
    is_served(endpoint)


def crowds_are_served(endpoint):
    answers = []

    def client():
        client = connect(zmq.REQ, endpoint)
        answers.extend(request(client, "let me go")[0] for _ in range(200))
        client.close()

    threads = [threading.Thread(target=client) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 50 * 200 and set(answers) <= {"go", "sorry"}, len(answers)
    print("go", answers.count("go"))


def two_hundred_wait(endpoint):
    clients = [connect(zmq.DEALER, endpoint) for _ in range(200)]
    for client in clients:
        call(client, "/v1/semaphore/crowd/acquire")
    ask("waiting")


def may_vanish(endpoint):
    """200 clients die while they wait, and leave the queue."""
    holder = connect(zmq.REQ, endpoint)
    assert request(holder, "/v1/semaphore/crowd/acquire?key=k&expires=0")[0] == "200"
    command = [sys.executable, __file__, "two_hundred_wait", endpoint]
    crowd = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert crowd.stdout.readline() == b"waiting\n"
    while '"waiting":200' not in request(holder, "/v1/semaphore/crowd")[1]:
        pass
    crowd.send_signal(signal.SIGKILL)
    crowd.wait()
    while '"waiting":0' not in request(holder, "/v1/semaphore/crowd")[1]:
        pass
    assert request(holder, "/v1/semaphore/crowd/release?key=k") == ["204", ""]
    assert request(holder, "/v1/semaphore/crowd/acquire?maxwait=0&key=k") == ["200", "k"]


def heartbeats_keep_a_connection(endpoint):
    client = connect(zmq.DEALER, endpoint, HEARTBEAT_IVL=200)
    monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    call(client, "/v1/event/never/wait?maxwait=3000")
    assert client.recv_multipart() == [b"", b"408", b"maxwait was exceeded"]
    assert monitor.poll(0) == 0, "disconnected"


def strangers_do_no_harm(endpoint, pid):
    before = resident(pid)
    for greeting in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", os.urandom(4096), b"\xff" + os.urandom(4096)):
        stream = raw(endpoint)
        try:
            stream.sendall(greeting)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        is_closed(stream)
    is_served(endpoint)
    assert resident(pid) - before < 32 << 20


def a_huge_frame_is_refused(endpoint, pid):
    before = resident(pid)
    for _ in range(20):
        stream = shaken(endpoint)
        stream.sendall(b"\x02" + (1 << 40).to_bytes(8, "big"))
        is_closed(stream)
    is_served(endpoint)
    assert resident(pid) - before < 32 << 20


def beyond_the_cap_is_no_message(endpoint):
    """Overhead as counted in docs/reference/server-options.md."""
    assert request(connect(zmq.REQ, endpoint), "x" * 65_408)[0] in ("go", "sorry")
    for frames in ([b"x" * 65_472], [b""] * 1024):
        dealer = connect(zmq.DEALER, endpoint)
        dealer.send_multipart(frames)
        assert dealer.poll(TIMEOUT), f"{len(frames)} frames, no answer"
    for empty, last in ((0, 65_473), (1024, 0)):
        stream = shaken(endpoint)
        stream.sendall((b"\x03" + bytes(8)) * empty + b"\x02" + last.to_bytes(8, "big"))
        is_closed(stream)
    is_served(endpoint)


def many_frames_are_refused(endpoint):
    client = connect(zmq.REQ, endpoint)
    client.send_multipart([b"x"] * 300)
    assert client.recv_multipart()[0] == b"400"
    assert request(client, "let me go")[0] in ("go", "sorry")
    bare = connect(zmq.DEALER, endpoint)
    for frames in ([b"x"] * 300, [b"\xff"], [b"a", b"", b"b", b"c"]):
        bare.send_multipart(frames)
        assert bare.recv_multipart()[-2] == b"400", frames
    for frames, answer in (([b"let me go"], 1), ([b""], 1), ([b"", b""], 2), ([b"1", b"2", b"", b"x"], 4)):
        bare.send_multipart(frames)
        got = bare.recv_multipart()
        assert len(got) == answer and got[-1] in (b"go", b"sorry") and got[:-1] == frames[: answer - 1], got


def half_open_handshakes_do_no_harm(endpoint):
    streams = [raw(endpoint) for _ in range(200)]
    for stream in streams[::2]:
        stream.sendall(b"\xff" + bytes(8) + b"\x7f\x03")
    is_served(endpoint)
    for stream in streams:
        is_closed(stream)


def beyond_the_cap_is_closed(endpoint, pid):
    """The cap is 3."""
    here = [connect(zmq.DEALER, endpoint) for _ in range(3)]
    for client in here:
        call(client, "let me go")
        client.recv_multipart()
    assert ask("full") == "counted"
    before = resident(pid)
    for _ in range(500):
        is_closed(shaken(endpoint))
    assert resident(pid) - before < 16 << 20, (resident(pid) - before) >> 20
    for client in here:
        call(client, "let me go")
        client.recv_multipart()
    patient = connect(zmq.REQ, endpoint, REQ_RELAXED=1, REQ_CORRELATE=1, RCVTIMEO=50)
    patient.send_string("let me go")
    assert ask("one too many") == "counted"
    here.pop().close()
    while not patient.poll(50):
        patient.send_string("let me go")
    patient.recv()
    for client in here:
        call(client, "let me go")
        client.recv_multipart()


def listeners_beyond_the_cap_are_closed(endpoint, publisher):
    """The cap is 3, for both kinds of connections together."""
    client = connect(zmq.REQ, endpoint)

    def listen():
        listener = connect(zmq.SUB, publisher)
        listener.subscribe("")
        is_told(listener)
        return listener

    def is_told(listener):
        request(client, "let me go")
        while not listener.poll(50):
            request(client, "let me go")
        while listener.poll(0):
            listener.recv_multipart()

    here = [listen() for _ in range(2)]
    assert ask("full") == "counted"
    for _ in range(20):
        is_closed(shaken(publisher, b"SUB"))
    for listener in here:
        is_told(listener)
    assert ask("refused") == "counted"
    here.pop().close()
    listen()
    is_told(here[0])


def client_that_never_reads_does_no_harm(endpoint, pid):
    flood = connect(zmq.DEALER, endpoint, SNDHWM=0, RCVHWM=1)

    def pour():
        for _ in range(400_000):
            call(flood, "/v1/tokenbucket/flood/acquire?size=1000000&interval=1&maxwait=0")

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    before = resident(pid)
    while thread.is_alive():
        is_served(endpoint)
    for _ in range(50):
        is_served(endpoint)
    assert resident(pid) - before < 64 << 20, (resident(pid) - before) >> 20


def calls_beyond_the_cap_are_refused(endpoint):
    """Four calls may be pending, and the store is frozen."""
    crowd = connect(zmq.DEALER, endpoint)
    ask("ready")
    for number in range(400):
        call(crowd, f"/v1/semaphore/s/release?key={number}")
    refused = [b"", b"503", b"too many unanswered calls on this connection (--max-zmq-calls)"]
    assert [crowd.recv_multipart() for _ in range(396)] == [refused] * 396
    call(crowd, "let me go")
    assert crowd.recv_multipart() == [b"", b"sorry"]
    ask("refused")
    assert [crowd.recv_multipart()[1] for _ in range(4)] == [b"409"] * 4
    assert request(connect(zmq.REQ, endpoint), "let me go") == ["go"]


def beyond_the_waits_is_sorry(endpoint):
    client = connect(zmq.DEALER, endpoint)
    call(client, "let me go")
    assert client.recv_multipart() == [b"", b"go"]
    call(client, "let me go")
    ask("held back")
    call(client, "let me go")
    assert client.recv_multipart() == [b"", b"sorry"]


def answers_reach_their_client(endpoint):
    """Two clients use one identity, and the store is frozen between request and answer."""
    first = connect(zmq.DEALER, endpoint, IDENTITY=b"same", RECONNECT_IVL=-1)
    nothing = [b"", b"404", b'no such path: "/v1/nothing"']
    ask("ready")
    call(first, "/v1/semaphore/s/release?key=first")
    call(first, "/v1/nothing")
    assert first.recv_multipart() == nothing, "and what was sent before is under way"
    second = connect(zmq.DEALER, endpoint, IDENTITY=b"same")
    call(second, "/v1/nothing")
    assert second.recv_multipart() == nothing
    ask("replaced")
    call(second, "/v1/semaphore/s/acquire?key=second")
    assert second.recv_multipart() == [b"", b"200", b"second"]


def answers_go_to_who_asked_at_the_end(endpoint):
    """As above, while the server shuts down."""
    first = connect(zmq.DEALER, endpoint, IDENTITY=b"same", RECONNECT_IVL=-1)
    ask("ready")
    call(first, "/v1/semaphore/s/release?key=first")
    call(first, "/v1/nothing")
    assert first.recv_multipart()[1] == b"404", "and what was sent before is under way"
    ask("under way")
    second = context.socket(zmq.DEALER)
    monitor = second.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    second.identity, second.linger = b"same", 0
    second.connect(endpoint)
    assert monitor.poll(TIMEOUT), "it is never there"
    ask("replaced")
    assert not second.poll(500), second.recv_multipart()


def a_name_changes_hands(endpoint):
    """Repeatedly, while answers to the previous owner are pending."""
    for _ in range(100):
        first = connect(zmq.DEALER, endpoint, IDENTITY=b"same", RECONNECT_IVL=-1)
        for number in range(100):
            call(first, f"/v1/event/never/wait?maxwait={2 + number % 5}")
        assert first.recv_multipart() == [b"", b"408", b"maxwait was exceeded"]
        second = connect(zmq.DEALER, endpoint, IDENTITY=b"same", RECONNECT_IVL=-1)
        call(second, "/v1/nothing")
        assert second.recv_multipart() == [b"", b"404", b'no such path: "/v1/nothing"']
        first.close()
        second.close()


def subscriptions_take_no_room(endpoint, publisher, pid):
    listener = connect(zmq.SUB, publisher)
    listener.subscribe("")
    client = connect(zmq.REQ, endpoint)
    flood = shaken(publisher, b"SUB")
    before = resident(pid)
    for number in range(20_000):
        topic = b"\x01" + number.to_bytes(8, "big") + bytes(8183)
        flood.sendall(b"\x02" + len(topic).to_bytes(8, "big") + topic)
    assert resident(pid) - before < 64 << 20, (resident(pid) - before) >> 20
    request(client, "let me go")
    while not listener.poll(50):
        request(client, "let me go")


def unread_long_answers_are_dropped(endpoint, pid):
    """A client chooses the request ids, and each answer repeats its id."""
    flood = connect(zmq.DEALER, endpoint, RCVHWM=1, RCVBUF=4096)
    client = connect(zmq.REQ, endpoint)
    before = resident(pid)
    for _ in range(5_000):
        flood.send_multipart([b"x" * 1000] * 60 + [b"", b"/v1/nothing"])
    call(flood, "/v1/event/all/send")
    assert request(client, "/v1/event/all/wait") == ["204", ""]
    assert resident(pid) - before < 64 << 20, (resident(pid) - before) >> 20


def relaxed_clients_get_their_own_answers(endpoint):
    client = connect(zmq.REQ, endpoint, REQ_RELAXED=1, REQ_CORRELATE=1)
    for number in range(100):
        client.send_string("/v1/event/never/wait?maxwait=50")
        assert request(client, f"/v1/semaphore/relaxed/acquire?size=1000&key=k{number}") == ["200", f"k{number}"]


def crowd_beside_http_waiters(endpoint, waiters, number):
    first = connect(zmq.REQ, endpoint)
    while json.loads(request(first, "/v1/event/e")[1]).get("waiting", 0) < int(waiters):
        pass
    crowd = [connect(zmq.REQ, endpoint) for _ in range(int(number) - 1)]
    for client in crowd:
        assert request(client, "/v1/event/e")[0] == "200"
    ask("served")
    more = [connect(zmq.REQ, endpoint) for _ in range(200)]
    for client in more:
        assert request(client, "/v1/event/other/wait?maxwait=0")[0] == "408"
    print("more", flush=True)


def bytes_of_calls_are_capped(endpoint):
    """The server takes 1 MiB, that is 17 calls of 60,000 bytes. Small ones still fit."""
    dealers = [connect(zmq.DEALER, endpoint) for _ in range(2)]
    large = "x" * 60_000

    def answers(number):
        found = []
        while len(found) < number:
            ready = zmq.select(dealers, [], [], TIMEOUT / 1000)[0]
            assert ready, f"only {len(found)} answers"
            found += [dealer.recv_multipart()[1:] for dealer in ready]
        return found

    for number in range(20):
        call(dealers[number % 2], f"/v1/event/e/wait?id={large}")
    for status, reason in answers(3):
        assert status == b"503" and b"--max-zmq-bytes" in reason, (status, reason)
    small = connect(zmq.REQ, endpoint)
    assert request(small, large) == ["sorry"]
    assert request(small, "let me go") == ["go"]
    assert request(small, "/v1/event/e/send") == ["204", ""]
    assert answers(17) == [[b"204", b""]] * 17
    call(dealers[0], f"/v1/event/e/wait?id={large}")
    assert answers(1) == [[b"204", b""]]


def asks_several_servers(first, second):
    """A REQ socket sends its requests in turn, and goes on with the servers that are left."""
    client = connect(zmq.REQ, first, REQ_RELAXED=1, REQ_CORRELATE=1)
    client.connect(second)
    is_served(first)
    is_served(second)
    for _ in range(4):
        assert request(client, "/v1/tokenbucket/turns/acquire?size=2&interval=3600000&maxwait=0") == ["204", ""]
    assert request(client, "/v1/tokenbucket/turns/acquire?size=2&interval=3600000&maxwait=0")[0] == "408"
    ask("four calls at two servers")
    client.rcvtimeo = 1000
    answered = 0
    while answered < 4:
        try:
            answered += request(client, "/v1/event/never/wait?maxwait=0")[0] == "408"
        except zmq.Again:
            pass
    print("the other one goes on", flush=True)


def later_requests_overtake(endpoint):
    client = connect(zmq.DEALER, endpoint)
    call(client, "/v1/event/never/wait")
    call(client, "/v1/semaphore/free/acquire?key=k")
    assert client.recv_multipart() == [b"", b"200", b"k"]
    ask("waiting")
    assert client.recv_multipart() == [b"", b"503", b"the server is shutting down"], "at shut-down waiters get 503"


def counts(endpoint, number):
    """Sends this many requests as fast as possible, and prints the number of `go`s."""
    client = connect(zmq.REQ, endpoint)
    is_served(endpoint)
    ask("ready")
    print(sum(request(client, "let me go") == ["go"] for _ in range(int(number))))


def relays(endpoint):
    """Lines become requests, answers become lines."""
    client = connect(zmq.REQ, endpoint)
    while line := ask(""):
        print("\x1f".join(request(client, line)), flush=True)


def encrypted(endpoint, server_key, public, secret):
    keys = {"CURVE_PUBLICKEY": public.encode(), "CURVE_SECRETKEY": secret.encode()}
    known = connect(zmq.REQ, endpoint, CURVE_SERVERKEY=server_key.encode(), **keys)
    assert request(known, "let me go")[0] in ("go", "sorry")
    public, secret = zmq.curve_keypair()
    keys = {"CURVE_PUBLICKEY": public, "CURVE_SECRETKEY": secret}
    stranger = connect(zmq.REQ, endpoint, CURVE_SERVERKEY=server_key.encode(), **keys)
    plain = connect(zmq.REQ, endpoint)
    for client in (stranger, plain):
        client.send_string("let me go")
    assert request(known, "let me go")[0] in ("go", "sorry")
    assert stranger.poll(500) == 0 and plain.poll(500) == 0, "served without a known key"


def curve_keys():
    for _ in range(2):
        print(*(key.decode() for key in zmq.curve_keypair()))


if __name__ == "__main__":
    # A client that waits forever must not block the test that started it.
    signal.alarm(120)
    globals()[sys.argv[1]](*sys.argv[2:])
