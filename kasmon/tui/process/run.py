"""Run the dashboard on this terminal, and log its errors to kasmon's own log: when and where, without values."""

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from kasmon.backends.common.environment import secret_values
from kasmon.host.journal import process_log
from kasmon.host.journal.known_secrets import add_secrets, hidden
from kasmon.host.journal.log_file import open_log
from kasmon.paths import Paths
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.live.gateway import LiveGateway
from kasmon.tui.textual_ext.driver import TapDriver
from kasmon.tui.textual_ext.line_filters import trace_of

LINE: Final = "%(asctime)s %(levelname)s %(message)s"
SWITCH_S: Final = 0.001
"""How long a thread computes while another waits for its turn, in seconds. With Python's 5 ms, those that read logs
and write to the terminal wait that long after each of their system calls while a frame is drawn."""


class ValuelessFormatter(logging.Formatter):
    """Formats a record as one line: the first line of its message, and where its error was raised. Error texts may
    contain any user data, and asyncio puts them into the further lines of its own messages."""

    def format(self, record: logging.LogRecord) -> str:
        first_line = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        plain = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "args": ()})
        plain.msg = hidden(first_line if error is None else f"{first_line}: {trace_of(error)}")
        return super().format(plain)


class ErrorLog(logging.Handler):
    """Appends to the file at *path*, which is created by the first record."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(ValuelessFormatter(LINE))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError), open_log(self._path) as file:
            file.write(f"{self.format(record)}\n".encode("utf-8", "replace"))


def log_errors_to(path: Path) -> None:
    """Log this process's errors to *path* and nowhere else, with secrets from the environment redacted."""
    add_secrets(secret_values(os.environ))
    process_log.configure(ErrorLog(path))


def run(paths: Paths, *, agents_go_on: bool = True) -> int:
    """Run the dashboard over *paths* until the user quits, and return the exit code.

    *agents_go_on* is what the dashboard tells the user; the agents of a demo stop.
    """
    sys.setswitchinterval(SWITCH_S)
    log_errors_to(paths.own_log)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # a shell may have exported them; the terminal reports its size itself
    gateway = LiveGateway(paths)
    app = Kasmon(gateway.first(), gateway, driver_class=TapDriver)
    app.agents_go_on = agents_go_on
    app.on_suspend = gateway.watch.close  # other processes write the index while this one is stopped
    # Until `exit_on_signals`: the handler of asyncio only cancels a task, and Textual may absorb that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        app.run()
    finally:
        gateway.close()
        if app.crash:
            sys.stderr.write(f"kasmon: {app.crash}\n")
        elif app.farewell:
            with contextlib.suppress(OSError):  # the terminal may be gone by now
                sys.stdout.write(f"{app.farewell}\n")
                sys.stdout.flush()
    return app.return_code or 0
