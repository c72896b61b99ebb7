"""A program in a pty of the bench: start it, wait for its output, press keys, end it by its pid."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from kasmon.bench.support.process_cost import share_of_a_core

ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?<>=!]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)

KASMON = [sys.executable, "-P", "-m", "kasmon"]
OVERLAP_BYTES = 2048
"""How much earlier output is searched again: the text may arrive in pieces, with escape sequences in it."""


class BenchTerminal:
    """*argv* in a pty of *columns* x *rows*; it ends with the context."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], columns: int = 120, rows: int = 40) -> None:
        self.started_at = time.perf_counter()
        self.printed_bytes = 0
        """How much output was read."""
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execvpe(argv[0], list(argv), dict(environment))
            os._exit(127)
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, limit_s: float) -> bytes:
        """Return the next output as soon as there is any, within *limit_s*; empty at the end."""
        if not select.select([self.handle], [], [], limit_s)[0]:
            return b""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self.handle, 1 << 17)
        self.printed_bytes += len(data)
        return data

    def until(self, text: bytes, limit_s: float = 30.0) -> float:
        """Wait for *text* in the output, ignoring escape sequences; return the time (`perf_counter`) when it appeared.

        Raises:
            TimeoutError: if it does not appear within *limit_s*; with the end of the output.
        """
        output = b""
        deadline = time.perf_counter() + limit_s
        while time.perf_counter() < deadline:
            before = len(output)
            output += self.read(max(0.0, deadline - time.perf_counter()))
            new = output[max(0, before - OVERLAP_BYTES) :]
            if text in new or text in ESCAPES.sub(b"", new):
                return time.perf_counter()
        raise TimeoutError(f"{text!r} did not show; the last of it was {ESCAPES.sub(b'', output)[-300:]!r}")

    def drain(self, quiet_s: float = 0.2, limit_s: float = 5.0) -> bytes:
        """Return all output until it is quiet for *quiet_s*."""
        output = b""
        deadline = time.perf_counter() + limit_s
        while time.perf_counter() < deadline and (data := self.read(quiet_s)):
            output += data
        return output

    def press(self, data: bytes) -> None:
        os.write(self.handle, data)

    def press_until(self, data: bytes, text: bytes, limit_s: float = 30.0) -> float:
        """Press keys; return the time until *text* is in the output, in ms. Raises as `until`."""
        began = time.perf_counter()
        self.press(data)
        return 1000 * (self.until(text, limit_s) - began)

    def close(self) -> None:
        """End the program: TERM, then KILL; both only to its own process."""
        for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                self.read(0.02)
                with contextlib.suppress(ChildProcessError):
                    if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                        continue
                os.close(self.handle)
                return


def open_dashboard(own: Mapping[str, str]) -> BenchTerminal:
    """Start a dashboard in a large window."""
    return BenchTerminal(KASMON, own, columns=160, rows=50)


def read_for(terminal: BenchTerminal, seconds: float) -> None:
    """Read *terminal* for *seconds*, so that it becomes idle."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        terminal.read(0.05)


def reading(terminal: BenchTerminal, pids: Sequence[int], seconds: float) -> float:
    """Measure the share of a core that *pids* use while *terminal* is read, as by a real terminal."""
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            terminal.read(0.05)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        return share_of_a_core(pids, seconds)
    finally:
        ended.set()
        reader.join()


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return a plain terminal's variables, overridden by *own*."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "KASMON_TMUX") if name in os.environ}
    return {"LANG": "C.UTF-8", **kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **own}
