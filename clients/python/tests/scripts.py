"""Programs of a few lines in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from servers import GENEROUS


class Script:
    """A program of a few lines in a process of its own. It knows `locker`, `name` and `say`."""

    START = """
        import asyncio, os, signal, sys, time
        from locker import *
        locker, name = Locker(sys.argv[1], lease=60, timeout=60), sys.argv[2]
        say = lambda text: print(text, flush=True)
    """

    def __init__(self, url: str, name: str, text: str) -> None:
        program = textwrap.dedent(self.START) + textwrap.dedent(text)
        command = [sys.executable, "-c", program, url, name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        """Returns the next line it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """Closes its standard input, waits for its end, and returns what it has said since."""
        return self.process.communicate(timeout=GENEROUS)[0].strip()
