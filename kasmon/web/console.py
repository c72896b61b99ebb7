"""The terminal that `kasmon web` was started on: links are printed there, and keys heard. The loop never waits for it.

A terminal can stand still for good: Ctrl+S, a pager, a pipe that nobody reads. What is printed and read goes through
threads, which only wait for it themselves; what does not fit between is dropped.
"""

import asyncio
import contextlib
import logging
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from kasmon.host.journal.process_log import LINE, RedactingFormatter
from kasmon.web.server import WebView

LINES: Final = 100
"""So many lines wait for a terminal that takes none."""
LAST_LINES_S: Final = 0.5
"""How long the end of the process waits for the last lines, in seconds."""
BACKGROUND_S: Final = 1.0
"""In the background, a look after so many seconds whether the terminal is ours again."""
REVOKE: Final = "r"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Console(logging.Handler):
    """Prints lines from a thread of its own; as a handler, what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(RedactingFormatter(LINE))
        self._lines: queue.Queue[tuple[int, bytes] | None] = queue.Queue(LINES)
        self._thread = threading.Thread(target=self._print, daemon=True, name="prints")
        self._thread.start()

    def say(self, line: str) -> None:
        """Print *line* to stdout soon; nothing where too many wait already."""
        self._put(1, line)

    def emit(self, record: logging.LogRecord) -> None:
        self._put(2, self.format(record))

    def close(self) -> None:
        """Wait for the last lines, for a moment."""
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
            with contextlib.suppress(OSError):  # nobody is there to read it
                while data:
                    data = data[os.write(number, data) :]


async def serve(view: WebView, tell: Callable[[str], None]) -> int:
    """Serve until a signal comes; its number. *tell* gets each link: the first, and another for each Enter.

    `r` before Enter logs out every browser that was let in before.
    """
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    signals: list[int] = []

    def hear_signal(number: int) -> None:
        signals.append(number)
        heard.set()

    def hear_line(line: str) -> None:
        if heard.is_set():
            return
        if line == REVOKE:
            view.revoke()
        tell(view.gate.link())

    for number in SIGNALS:
        loop.add_signal_handler(number, hear_signal, number)
    await view.open()
    try:
        tell(view.gate.link())
        if sys.stdin is not None and sys.stdin.isatty():
            threading.Thread(target=_hear, args=(loop, hear_line), daemon=True, name="hears Enter").start()
        await heard.wait()
        return signals[0]
    finally:
        heard.set()
        await view.close()


def _hear(loop: asyncio.AbstractEventLoop, hear: Callable[[str], None]) -> None:
    """Have *hear* called on *loop* with each line typed here; in the background it may be for another program."""
    with contextlib.suppress(OSError, RuntimeError):  # the terminal, or the loop, is closed
        while True:
            select.select([0], [], [])
            if os.tcgetpgrp(0) != os.getpgrp():
                time.sleep(BACKGROUND_S)
                continue
            if not (typed := os.read(0, 4096)):
                return
            loop.call_soon_threadsafe(hear, typed.decode("utf-8", "replace").strip().lower())
