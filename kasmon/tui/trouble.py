"""What goes wrong in the dashboard is told in kasmon's own log: when and where, no values; the screen never has it."""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from kasmon.backends.surroundings import secret_values
from kasmon.host import own_log
from kasmon.tui.safety import trace_of

LINE: Final = "%(asctime)s %(levelname)s %(message)s"


class WithoutValues(logging.Formatter):
    """One line a record: the first one of its message, and where its error comes from. What an error says may be
    anything that anybody wrote, and asyncio puts it into the further lines of its own messages."""

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        plain = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "args": ()})
        plain.msg = own_log.hidden(said if error is None else f"{said}: {trace_of(error)}")
        return super().format(plain)


class TroubleLog(logging.Handler):
    """Writes to the file at *path*, which is there only once something went wrong."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(WithoutValues(LINE))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError), own_log.opened(self._path) as file:
            file.write(f"{self.format(record)}\n".encode("utf-8", "replace"))


def keep_trouble(path: Path) -> None:
    """From now on all that goes wrong in this process is told at *path*, and nowhere else."""
    own_log.learn(secret_values(os.environ))
    own_log.keep(TroubleLog(path))
