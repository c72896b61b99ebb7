"""A dashboard on its own terminal for one page: it starts and ends with the page, the agents do not."""

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
EXEC: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("pty_exec.py")))
READ_BYTES: Final = 64 * 1024
LIFELINE: Final = "KASMON_LIFELINE"
"""A variable of a guarded dashboard; this one has no guard."""
UNREAD_S: Final = 10.0
"""How long keys wait for a dashboard that reads none, in seconds: further messages of the page wait as long."""
END_S: Final = 8.0
"""How long a dashboard may take to exit without its terminal; then it is killed."""
SMALLEST, LARGEST = 1, 1000
"""The minimum and maximum of columns and rows that a page may request."""
TERMINAL_VARS: Final = (*OF_ONE_SESSION, "STY", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES", LIFELINE)
"""Variables that describe the terminal of `kasmon web`, which is not that of the page."""


class DashboardSession:
    """A dashboard and the master side of its terminal. Use it on the loop that opened it."""

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
            OSError: if there is no free terminal, or no process could be started.
        """
        ours, theirs = pty.openpty()
        try:
            os.set_blocking(ours, False)
            _resize(ours, columns, rows)
            process = await asyncio.create_subprocess_exec(
                *EXEC, *argv, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environment), start_new_session=True
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours)

    async def read(self) -> bytes:
        """Return output of the dashboard; empty once it has ended."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            try:
                return os.read(self._terminal, READ_BYTES)
            except BlockingIOError:
                await self._wait_until_ready(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno != errno.EIO:  # Linux reports a closed slave side so
                    raise
                break
        return b""

    async def write(self, keys: bytes) -> None:
        """Type *keys*; wait for a while if the dashboard does not read, then drop the rest."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(UNREAD_S):
                await self._write(keys)

    async def _write(self, keys: bytes) -> None:
        loop = asyncio.get_running_loop()
        while keys and not self._closed:
            try:
                keys = keys[os.write(self._terminal, keys) :]
            except BlockingIOError:
                await self._wait_until_ready(loop.add_writer, loop.remove_writer)

    def resize(self, columns: int, rows: int) -> None:
        """Resize the terminal, which notifies the dashboard."""
        if not self._closed:
            _resize(self._terminal, columns, rows)

    async def _wait_until_ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        """Wait until the terminal is readable or writable, whichever *add* and *remove* watch, or is closed."""
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
        """Close the terminal, and wait until the dashboard has ended; idempotent."""
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


def page_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a dashboard in a page: those of `kasmon web`, except of its terminal."""
    kept = {name: value for name, value in environment.items() if name not in TERMINAL_VARS}
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def clamp_size(number: object) -> int | None:
    """Return *number* as columns or rows of a terminal; None if it is not a number."""
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
