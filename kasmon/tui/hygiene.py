"""How the dashboard ends when it is told to, or loses its terminal or its guard: always with a clean terminal.

Textual 8.2 restores the terminal after its own exit and after SIGINT only; and it spins for ever on a terminal that is
gone (textual#6690).
"""

import asyncio
import os
import signal
import stat
import threading
from typing import Any, Final

from textual.app import App

from kasmon.tui import guard
from kasmon.tui.driver import TapDriver

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
    gone = 128 + signal.SIGHUP

    def end(code: int) -> None:
        if driver.gone or driver.is_hung_up():
            driver.gone = True
            _write_nowhere()
        limit_s = LAST_RESORT_GONE_S if driver.gone else LAST_RESORT_S
        threading.Thread(target=_end_anyway, args=(code, limit_s), daemon=True, name="last-resort").start()
        app.exit(return_code=code)

    def look() -> None:
        if driver.is_hung_up():
            driver.hang_up()

    for number in SIGNALS:
        loop.add_signal_handler(number, end, 128 + number)
    driver.on_hangup = lambda: end(gone)
    app.set_interval(LOOK_S, look)
    if guard.lifeline is not None:
        loop.add_reader(guard.lifeline, _unguarded, loop, guard.lifeline, lambda: end(gone))


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


def _end_anyway(code: int, limit_s: float) -> None:
    """What hangs at the end (a queue to a terminal that takes nothing) must not keep the process."""
    threading.Event().wait(limit_s)
    os._exit(code)
