"""Programs that fork while they use locker: `forks.py <function> <URL, or memory> <forked, or nothing>`.

Each function is one case. A failed assertion, in the parent or in a child, ends the program with an error. With
`forked`, a hook calls `locker.forked` in every child; all cases must pass without it as well.
"""

import ctypes
import faulthandler
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.parse

import locker_forks as locker

case, url, hook = sys.argv[1:]
LIMIT = 300
AT_ONCE = 10
# Long enough for a machine that is busy with other tests.
SHORT = 3

if hook:
    os.register_at_fork(after_in_child=locker.forked)


def connect():
    return locker.Locker.memory() if url == "memory" else locker.Locker.connect(url)


def in_child(run, end=os._exit, fork=os.fork):
    """Runs `run` in a forked child, which ends by `end(0)`. Returns the child."""
    child = fork()
    if child:
        return child
    try:
        signal.alarm(LIMIT)
        run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    end(0)


def wait_for(child, status=0):
    assert os.waitpid(child, 0)[1] == status, "the child failed"


def in_children(run, after_the_forks=lambda: None):
    """Runs `run` in three children at a time, which end in three ways: without and with destructors, and killed."""
    ends = [(os._exit, 0), (sys.exit, 0), (kill, signal.SIGKILL)]
    children = [(in_child(run, end), status) for end, status in ends]
    after_the_forks()
    for child, status in children:
        wait_for(child, status)


def process_of_the_server():
    host, port = urllib.parse.urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), AT_ONCE) as connection:
        connection.sendall(b"INFO server\r\n")
        text = ""
        while not (found := re.search(r"process_id:(\d+)\r", text)):
            text += connection.recv(4096).decode()
        return int(found[1])


def kill(_):
    os.kill(os.getpid(), signal.SIGKILL)


def misused(call, *arguments):
    started = time.monotonic()
    try:
        call(*arguments)
    except locker.LockerError as error:
        kind, message = error.args
        assert kind == "misused" and "before a fork" in message, error
    else:
        raise AssertionError(f"{call} returned")
    assert time.monotonic() - started < AT_ONCE, call


def works(mine):
    """A new locker of this process works, and renews."""
    name = f"child {os.getpid()}"
    guard = mine.lock(name, SHORT)
    assert mine.try_lock(name) is None
    time.sleep(2 * SHORT + 1)
    guard.check()
    guard.release()
    kinds = mine.other_calls(name)
    assert set(kinds) == {"none"}, kinds
    mine.settle()


def hold():
    parents = connect()
    guard = parents.lock("a", SHORT)
    fence = guard.fence

    def child():
        mine = connect()
        # A store in memory is the child's alone.
        assert (mine.try_lock("a") is not None) == (url == "memory")
        works(mine)

    in_children(child)
    guard.check()
    assert guard.fence == fence
    assert parents.try_lock("a") is None
    guard.release()
    again = parents.try_lock("a")
    assert again.fence > fence
    again.release()


def parents_locker():
    parents = connect()
    unused = connect()
    guards = [parents.lock(name, SHORT) for name in "abc"]

    def child():
        for old in (parents, unused):
            misused(old.lock, "free")
            misused(old.lock, "a")
            misused(old.try_lock, "free")
            started = time.monotonic()
            assert set(old.other_calls("free")) == {"misused"}
            assert time.monotonic() - started < AT_ONCE
            old.settle()
        checked, released, dropped = guards
        assert not checked.is_held() and checked.is_lost()
        misused(checked.check)
        misused(released.release)
        guards.clear()
        works(connect())

    in_children(child)
    for guard in guards:
        guard.check()
        assert not guard.is_lost()
        guard.release()


def waits():
    parents = connect()
    guard = parents.lock("a", SHORT)
    granted = []
    thread = threading.Thread(target=lambda: granted.append(parents.lock("a", SHORT)))
    thread.start()
    time.sleep(0.2)
    waiting = [parents.wait("a"), parents.wait("a")]

    def child():
        # Polled in the child, the copy of a wait ends; the other one is dropped.
        misused(waiting[1].poll)
        waiting.clear()
        works(connect())

    in_children(child)
    assert not granted
    guard.release()
    thread.join(LIMIT)
    granted.pop().release()
    for wait in waiting:
        while (guard := wait.poll()) is None:
            time.sleep(0.001)
        guard.release()


def leaving():
    parents = connect()
    guard = parents.lock("a")
    waiting = [parents.wait("a", SHORT) for _ in range(5)]
    time.sleep(SHORT + 0.5)
    # Polled after its timeout, a wait leaves the queue, and the server cannot reply before the forks.
    server = process_of_the_server()
    os.kill(server, signal.SIGSTOP)
    assert not any([has_timed_out(wait) for wait in waiting])

    def child():
        for wait in waiting:
            misused(wait.poll)
        works(connect())

    in_children(child, lambda: os.kill(server, signal.SIGCONT))
    while waiting:
        waiting = [wait for wait in waiting if not has_timed_out(wait)]
        time.sleep(0.001)
    guard.release()


def has_timed_out(wait):
    try:
        assert wait.poll() is None
    except locker.LockerError as error:
        assert error.args[0] == "timed out", error
        return True
    return False


def busy():
    parents, over = connect(), threading.Event()

    def work(number):
        while not over.is_set():
            parents.lock("shared").release()
            parents.lock(f"own {number}").release()
            parents.try_lock(f"dropped {number}")
            locker.withdraw(number, 1)
            assert set(parents.other_calls(f"other {number}")) == {"none"}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    guard = parents.lock("a")

    def child():
        misused(parents.lock, "shared")
        misused(guard.check)
        mine = connect()
        mine.lock("b").release()
        # The parent's hold is in the copy of its store only.
        assert (mine.try_lock("a") is not None) == (url == "memory")
        assert locker.withdraw(1, 1) == 2
        assert set(mine.other_calls("child's")) == {"none"}

    for _ in range(20):
        wait_for(in_child(child))
        wait_for(in_child(child, sys.exit))
    over.set()
    for thread in threads:
        thread.join(LIMIT)
    guard.release()


def warning():
    connect()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b" " * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    terminal = os.dup(2)
    os.dup2(writer, 2)
    # Warns that locks are kept in memory, and waits until somebody reads that.
    thread = threading.Thread(target=locker.withdraw, args=(1, 1), daemon=True)
    thread.start()
    time.sleep(0.5)

    def child():
        os.dup2(terminal, 2)
        assert locker.withdraw(1, 1) == 2

    wait_for(in_child(child))
    assert thread.is_alive()
    while thread.is_alive():
        os.read(reader, 65536)
        thread.join(0.1)
    os.dup2(terminal, 2)


def daemon():
    parents = connect()
    guard = parents.lock("a", SHORT)
    reader, writer = os.pipe()

    def first():
        mine = connect()
        held = mine.lock("first", SHORT)
        os.setsid()

        def second():
            for old in (parents, mine):
                misused(old.lock, "free")
            misused(held.check)
            time.sleep(0.5)
            works(connect())
            os.write(writer, b"works")

        in_child(second)
        # Ends before its child, and releases nothing.

    wait_for(in_child(first))
    os.close(writer)
    assert os.read(reader, 9) == b"works"
    guard.check()
    guard.release()


def global_locker():
    mine = connect()
    assert locker.set_global(mine)
    assert locker.withdraw(1, 1) == 2

    def child():
        misused(locker.withdraw, 1, 1)
        misused(locker.Locker.of_process().lock, "a")
        own = connect()
        assert locker.set_global(own)
        assert not locker.set_global(own)
        assert locker.withdraw(1, 1) == 2

    def without_a_locker():
        wait_for(in_child(lambda: misused(locker.withdraw, 1, 1)))

    wait_for(in_child(child))
    wait_for(in_child(without_a_locker))
    assert locker.withdraw(1, 1) == 2


def take_turns(turns):
    for _ in range(turns):
        guard = mine_of_worker.lock("turn")
        assert inside.value == 0, "somebody else is inside"
        inside.value = os.getpid()
        count.value += 1
        time.sleep(0.001)
        assert inside.value == os.getpid()
        inside.value = 0
        guard.release()


def begin_worker():
    global mine_of_worker
    mine_of_worker = connect()


def pool():
    global inside, count
    forking = multiprocessing.get_context("fork")
    inside, count = forking.Value("q", 0, lock=False), forking.Value("q", 0, lock=False)
    parents = connect()
    guard = parents.lock("a", SHORT)
    with forking.Pool(4, begin_worker) as workers:
        workers.map(take_turns, [5] * 40, chunksize=1)
    assert count.value == 200, count.value
    guard.check()
    guard.release()


def process():
    parents = connect()
    guard = parents.lock("a", SHORT)
    forking = multiprocessing.get_context("fork")
    reader, writer = forking.Pipe(duplex=False)

    def child():
        mine = connect()
        writer.send("waits")
        held = mine.lock("a", SHORT)
        writer.send(held.fence)
        held.release()

    started = forking.Process(target=child)
    started.start()
    assert reader.recv() == "waits"
    assert not reader.poll(1)
    fence = guard.fence
    guard.release()
    assert reader.recv() > fence
    started.join(LIMIT)
    assert started.exitcode == 0


def bare_fork():
    fork = ctypes.PyDLL(None)._Fork
    parents = connect()
    guard = parents.lock("a", SHORT)

    def child():
        locker.forked()
        misused(parents.lock, "free")
        misused(guard.check)
        mine = connect()
        locker.forked()
        works(mine)

    wait_for(in_child(child, fork=fork))
    guard.check()
    guard.release()


def observer():
    parents = connect()
    observed = parents.observe("reaper")
    fence = observed.fence()
    assert fence is not None

    def child():
        assert observed.fence() is None
        assert not observed.has_changed()
        works(connect())

    in_children(child)
    assert observed.fence() == fence


# Not `dump_traceback_later`: its thread is missing at the normal exit of a child.
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(LIMIT)
globals()[case]()
