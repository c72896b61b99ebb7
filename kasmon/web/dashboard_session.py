"""One dashboard on a terminal of its own, for one page: it begins and ends with the visit, the agents do not."""

import asyncio
import contextlib
import errno
import os
import pty
import signal
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kasmon.host.rpc.spawn import OF_ONE_SESSION

DASHBOARD: Final = (sys.executable, "-P", "-m", "kasmon")
SEAT: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("pty_exec.py")))
READ_BYTES: Final = 64 * 1024
LIFELINE: Final = "KASMON_LIFELINE"
"""What a guarded dashboard is told; this one is nobody's child."""
UNREAD_S: Final = 10.0
"""How long keys wait for a dashboard that reads none, in seconds: whoever typed them is not heard meanwhile."""
END_S: Final = 8.0
"""How long a dashboard may take to end once its terminal is gone; then it is killed."""
SMALLEST, LARGEST = 1, 1000
"""Columns and rows that a page may ask for."""
ELSEWHERE: Final = (*OF_ONE_SESSION, "STY", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES", LIFELINE)
"""Variables that tell of the terminal in which `kasmon web` runs, which is not the one in the page."""


class DashboardSession:
    """A dashboard and the other end of its terminal. Use it on the loop that opened it."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self.pid: int = process.pid
        self._process = process
        self._terminal = terminal
        self._closed = False
        self._waiting: set[asyncio.Future[None]] = set()

    @classmethod
    async def open(
        cls, columns: int, rows: int, environment: Mapping[str, str], argv: Sequence[str] = DASHBOARD
    ) -> "DashboardSession":
        """Start *argv* on a terminal of *columns* x *rows*.

        Raises:
            OSError: if there is no terminal left, or no process could be started.
        """
        ours, theirs = pty.openpty()
        try:
            os.set_blocking(ours, False)
            _resize(ours, columns, rows)
            process = await asyncio.create_subprocess_exec(
                *SEAT, *argv, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environment), start_new_session=True
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours)

    async def read(self) -> bytes:
        """What the dashboard drew; empty once it has ended."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            try:
                return os.read(self._terminal, READ_BYTES)
            except BlockingIOError:
                await self._until(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno != errno.EIO:  # as Linux tells that nobody has the other end any more
                    raise
                break
        return b""

    async def write(self, keys: bytes) -> None:
        """Type *keys*; waits while the dashboard reads none, for a while. What it does not read then is forgotten."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(UNREAD_S):
                await self._write(keys)

    async def _write(self, keys: bytes) -> None:
        loop = asyncio.get_running_loop()
        while keys and not self._closed:
            try:
                keys = keys[os.write(self._terminal, keys) :]
            except BlockingIOError:
                await self._until(loop.add_writer, loop.remove_writer)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the dashboard is told."""
        if not self._closed:
            _resize(self._terminal, columns, rows)

    async def _until(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        """Wait until the terminal can be read or written, whichever *add* and *remove* watch, or is closed."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(ready)
        add(self._terminal, _set, ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if not self._closed:
                remove(self._terminal)

    async def close(self) -> None:
        """Take the terminal away, and wait until the dashboard has ended; safe to call again."""
        if not self._closed:
            self._closed = True
            for waiting in [each for each in self._waiting if not each.done()]:
                waiting.set_result(None)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._terminal)
            loop.remove_writer(self._terminal)
            os.close(self._terminal)
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()


def surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a dashboard in a page, from those of `kasmon web`: the same but for what its terminal is."""
    kept = {name: value for name, value in environment.items() if name not in ELSEWHERE}
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def fitting(number: object) -> int | None:
    """*number* as columns or rows of a terminal; None if it is no number at all."""
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 9:
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return min(max(number, SMALLEST), LARGEST)


def _resize(terminal: int, columns: int, rows: int) -> None:
    termios.tcsetwinsize(terminal, (rows, columns))


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
