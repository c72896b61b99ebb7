"""How the dashboard ends when it is told to, or loses its terminal or its guard: always with a clean terminal.

Textual 8.2 restores the terminal after its own exit and after SIGINT only; and it spins for ever on a terminal that is
gone (textual#6690). A signal is heard by a thread that does nothing else: a loop that stands still (in a lock, before a
terminal that takes nothing) keeps nobody from ending the process.
"""

import asyncio
import contextlib
import os
import signal
import stat
import threading
from typing import Any, Final

from textual.app import App

from kasmon.tui.process import terminal_guard
from kasmon.tui.textual_ext.driver import TapDriver

LOOK_S: Final = 1.0
"""How often the terminal is looked at, in seconds; a read that fails tells sooner."""
LAST_RESORT_S: Final = 5.0
"""How long an orderly end may take; then the process ends, and its guard restores the terminal."""
LAST_RESORT_GONE_S: Final = 1.0
"""Likewise where the terminal is gone, and with it everything that would be waited for."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def keep_clean(app: App[Any]) -> None:
    """From now on *app* ends with 128 + n on signal n, and with 129 when its terminal or its guard is gone.

    Call it once, on the app's loop (in `on_mount`). Without a terminal, as in a test, it does nothing.
    """
    driver = app._driver
    if not isinstance(driver, TapDriver):
        return
    loop = asyncio.get_running_loop()
    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def end(code: int) -> None:
        if driver.gone:
            _write_nowhere()
        app.exit(return_code=code)

    def hear() -> None:
        code = _next_end(told)
        driver.gone = driver.gone or driver.is_hung_up()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it ends already
            loop.call_soon_threadsafe(end, code)
        threading.Event().wait(LAST_RESORT_GONE_S if driver.gone else LAST_RESORT_S)
        os._exit(code)  # what hangs at the end must not keep the process

    def note(number: int, frame: object = None) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it has been told often enough
            os.write(tell, bytes((number,)))

    def end_without_terminal() -> None:
        note(signal.SIGHUP)

    def look() -> None:
        if driver.is_hung_up():
            driver.hang_up()

    threading.Thread(target=hear, daemon=True, name="hears signals").start()
    for number in SIGNALS:
        signal.signal(number, note)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)  # noted at once, also where this thread runs no Python
    driver.on_hangup = end_without_terminal
    app.set_interval(LOOK_S, look)
    if terminal_guard.lifeline is not None:
        loop.add_reader(terminal_guard.lifeline, _unguarded, loop, terminal_guard.lifeline, end_without_terminal)


def _next_end(told: int) -> int:
    """The exit code for the next signal on the pipe *told* that is to end the process; others pass by. Blocks."""
    while True:
        for number in os.read(told, 64):
            if number in SIGNALS:
                return 128 + number


def _unguarded(loop: asyncio.AbstractEventLoop, lifeline: int, end: Any) -> None:
    loop.remove_reader(lifeline)
    os.close(lifeline)
    end()


def _write_nowhere() -> None:
    """What is still buffered for a terminal that is gone must not fail at the very end, and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
