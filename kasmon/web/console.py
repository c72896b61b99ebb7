"""The terminal of `kasmon web`: it shows links and reads keys. The event loop never waits for it.

A terminal can block forever: Ctrl+S, a pager, an unread pipe. So output and input go through threads, and only these
wait; lines beyond the queue's limit are dropped.
"""

import asyncio
import contextlib
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from kasmon.host.journal.process_log import LINE, RedactingFormatter
from kasmon.host.rpc.locked_process import StopSignal
from kasmon.paths import Paths
from kasmon.supervisor.request_links import announced_address
from kasmon.web.server import WebView

LINES: Final = 100
"""How many lines are queued for a blocked terminal."""
LAST_LINES_S: Final = 0.5
"""How long the process waits for the last lines before it exits, in seconds."""
BACKGROUND_S: Final = 1.0
"""The interval in which a background process checks whether it has the terminal again, in seconds."""
REVOKE: Final = "r"


class Console(logging.Handler):
    """Prints lines in its own thread; as a logging handler, log records."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(RedactingFormatter(LINE))
        self._lines: queue.Queue[tuple[int, bytes] | None] = queue.Queue(LINES)
        self._thread = threading.Thread(target=self._print, daemon=True, name="prints")
        self._thread.start()

    def print_line(self, line: str) -> None:
        """Queue *line* for stdout; drop it if the queue is full."""
        self._put(1, line)

    def emit(self, record: logging.LogRecord) -> None:
        self._put(2, self.format(record))

    def close(self) -> None:
        """Wait a moment for the last lines."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(LAST_LINES_S)
        super().close()

    def _put(self, number: int, line: str) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait((number, f"{line}\n".encode("utf-8", "backslashreplace")))

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            number, data = line
            with contextlib.suppress(OSError):  # the reader is gone
                while data:
                    data = data[os.write(number, data) :]


async def serve(paths: Paths, view: WebView, show_link: Callable[[str], None]) -> int:
    """Serve until a signal arrives, and return its number. *show_link* gets the first link, and one for each Enter.

    Meanwhile `request_links.link_of` makes links to this server, for the kasmon of *paths*.

    `r` before Enter logs out every browser that logged in before.
    """
    stop = StopSignal()

    def handle_line(line: str) -> None:
        if stop.received.is_set():
            return
        if line == REVOKE:
            view.revoke()
        show_link(view.access_guard.create_link())

    await view.open()
    try:
        with announced_address(paths, view.url):
            show_link(view.access_guard.create_link())
            if sys.stdin is not None and sys.stdin.isatty():
                reads = (asyncio.get_running_loop(), handle_line)
                threading.Thread(target=_read_lines, args=reads, daemon=True, name="hears Enter").start()
            await stop.received.wait()
        return stop.number
    finally:
        stop.received.set()
        await view.close()


def _read_lines(loop: asyncio.AbstractEventLoop, handle_line: Callable[[str], None]) -> None:
    """Call *handle_line* on *loop* with each typed line; in the background, input may be for another program."""
    with contextlib.suppress(OSError, RuntimeError):  # the terminal, or the loop, is closed
        while True:
            select.select([0], [], [])
            if os.tcgetpgrp(0) != os.getpgrp():
                time.sleep(BACKGROUND_S)
                continue
            if not (typed := os.read(0, 4096)):
                return
            loop.call_soon_threadsafe(handle_line, typed.decode("utf-8", "replace").strip().lower())
