"""A program in a terminal of the bench's own: start it, wait for what it shows, press keys, end it by its pid."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence

from kasmon.bench.support.process_cost import share_of_a_core

ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?<>=!]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)

OVERLAP_BYTES = 2048
"""So much of what was seen before is looked at again: what is waited for may come in pieces, with escapes in it."""


class BenchTerminal:
    """*argv* in a pty of *columns* x *rows*; `close` it."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], columns: int = 120, rows: int = 40) -> None:
        self.started_at = time.perf_counter()
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execvpe(argv[0], list(argv), dict(environment))
            os._exit(127)
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, limit_s: float) -> bytes:
        """What it prints within *limit_s*, at the first moment that it prints anything; empty at the end."""
        if not select.select([self.handle], [], [], limit_s)[0]:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self.handle, 1 << 17)
        return b""

    def until(self, text: bytes, limit_s: float = 30.0) -> float:
        """The moment (`perf_counter`) at which *text* had been printed, escape sequences left out.

        Raises:
            TimeoutError: if it does not show within *limit_s*; with the end of what was seen.
        """
        seen = b""
        deadline = time.perf_counter() + limit_s
        while time.perf_counter() < deadline:
            before = len(seen)
            seen += self.read(max(0.0, deadline - time.perf_counter()))
            new = seen[max(0, before - OVERLAP_BYTES) :]
            if text in new or text in ESCAPES.sub(b"", new):
                return time.perf_counter()
        raise TimeoutError(f"{text!r} did not show; the last of it was {ESCAPES.sub(b'', seen)[-300:]!r}")

    def drain(self, quiet_s: float = 0.2, limit_s: float = 5.0) -> bytes:
        """All it prints until it is quiet for *quiet_s*."""
        seen = b""
        deadline = time.perf_counter() + limit_s
        while time.perf_counter() < deadline and (data := self.read(quiet_s)):
            seen += data
        return seen

    def press(self, data: bytes) -> None:
        os.write(self.handle, data)

    def close(self) -> None:
        """End it: TERM, then KILL; both only to the process that this is."""
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


def settle(terminal: BenchTerminal, seconds: float) -> None:
    """Read *terminal* for *seconds*, so that it comes to rest."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        terminal.read(0.05)


def reading(terminal: BenchTerminal, pids: Sequence[int], seconds: float) -> float:
    """The share of a core that *pids* use, while somebody reads *terminal* as a real one does."""
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
    """A plain terminal's variables, with *own* over them."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "KASMON_TMUX") if name in os.environ}
    return {"LANG": "C.UTF-8", **kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **own}
