"""Ends the dashboard on a signal, or when its terminal or its guard is gone: always with a clean terminal.

Textual 8.2 restores the terminal after its own exit and after SIGINT only; and it loops forever on a terminal that is
gone (textual#6690). A thread of its own receives the signals: a blocked event loop (by a lock, or a terminal that takes
no output) cannot keep the process from ending.
"""

import asyncio
import contextlib
import os
import signal
import stat
import threading
from collections.abc import Callable
from typing import Any, Final

from textual.app import App

from kasmon.tui.process import terminal_guard
from kasmon.tui.textual_ext.driver import find_tap_driver

LOOK_S: Final = 1.0
"""How often to check the terminal, in seconds; a read that fails reports it sooner."""
LAST_RESORT_S: Final = 5.0
"""How long an orderly shutdown may take; then the process exits, and its guard restores the terminal."""
LAST_RESORT_GONE_S: Final = 1.0
"""The same if the terminal is gone, and with it everything worth waiting for."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def exit_on_signals(app: App[Any], on_suspend: Callable[[], object] = lambda: None) -> None:
    """Make *app* exit with 128 + n on signal n, and with 129 when its terminal or its guard is gone.

    Call it once, on the app's loop (in `on_mount`). Without a terminal, as in a test, it does nothing.

    Args:
        on_suspend: called in a thread before SIGTSTP stops the process.
    """
    if (driver := find_tap_driver(app)) is None:
        return
    loop = asyncio.get_running_loop()
    signals_read, signals_write = os.pipe()
    os.set_blocking(signals_write, False)

    def end(code: int) -> None:
        if driver.gone:
            _redirect_output()
        app.exit(return_code=code)

    def await_signal() -> None:
        code = _read_exit_code(signals_read)
        driver.gone = driver.gone or driver.is_hung_up()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is ending already
            loop.call_soon_threadsafe(end, code)
        threading.Event().wait(LAST_RESORT_GONE_S if driver.gone else LAST_RESORT_S)
        os._exit(code)  # a hanging shutdown must not keep the process alive

    def note(number: int, frame: object = None) -> None:
        with contextlib.suppress(BlockingIOError):  # full: enough signals are pending
            os.write(signals_write, bytes((number,)))

    def end_without_terminal() -> None:
        note(signal.SIGHUP)

    def check() -> None:
        if driver.is_hung_up():
            driver.hang_up()

    threading.Thread(target=await_signal, daemon=True, name="hears signals").start()
    for number in SIGNALS:
        signal.signal(number, note)
    signal.set_wakeup_fd(
        signals_write, warn_on_full_buffer=False
    )  # noted at once, also while this thread runs no Python
    driver.on_hangup = end_without_terminal
    driver.on_suspend = on_suspend
    app.set_interval(LOOK_S, check)
    if terminal_guard.lifeline is not None:
        loop.add_reader(
            terminal_guard.lifeline, _handle_guard_gone, loop, terminal_guard.lifeline, end_without_terminal
        )


def _read_exit_code(signals_read: int) -> int:
    """Return the exit code of the next terminating signal on the pipe *signals_read*, ignoring others. Blocks."""
    while True:
        for number in os.read(signals_read, 64):
            if number in SIGNALS:
                return 128 + number


def _handle_guard_gone(loop: asyncio.AbstractEventLoop, lifeline: int, end: Any) -> None:
    loop.remove_reader(lifeline)
    os.close(lifeline)
    end()


def _redirect_output() -> None:
    """Redirect output to /dev/null: flushing it to a terminal that is gone would fail, and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
