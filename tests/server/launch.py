"""Runs a command outside the terminal of the tests: `launch.py <where> COMMAND ARGUMENT..`."""

import os
import pty
import signal
import sys


def without_terminal(*command):
    os.setsid()
    os.execvp(command[0], command)


def ignoring_children(*command):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.execvp(command[0], command)


def at_a_keyboard(*command):
    """Types Ctrl-C repeatedly. USR1 prints the collected output at the end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    said = b""

    def until(words):
        nonlocal said
        while words not in said:
            said += os.read(terminal, 4096)

    until(b"ready")
    os.write(terminal, b"typed\n")
    until(b"read typed")
    for count in range(1, 6):
        os.write(terminal, b"\x03")
        until(b"INT %d." % count)
    os.kill(pid, signal.SIGUSR1)
    until(b"in all")
    print(said.decode())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    signal.alarm(120)
    globals()[sys.argv[1]](*sys.argv[2:])
