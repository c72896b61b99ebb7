"""How an agent's process is ended, and what its pane says afterwards."""

import contextlib
import os
import signal
from typing import Final

from kasmon.clean import clean_line
from kasmon.tmux.identity import Process, identify
from kasmon.tmux.request import Lines

TMUX_SAYS: Final = "Pane is dead"
"""How tmux's own line on a dead pane begins."""
SCROLLED_BY_DEATH: Final = -1
"""That line pushes the screen up by one row, into the history: the first row that an agent wrote is this one."""


def signal_group(process: Process | None, number: int) -> bool:
    """Send signal *number* to the process group that *process* leads; false if it is gone."""
    if process is None or identify(process.pid) != process:
        return False
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)
        return True
    return False


def signal_name(number: int | None) -> str | None:
    """`SIGKILL` for 9; a number for a signal without a name."""
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_line(rows: Lines) -> str:
    """The last row that says something, cleaned; tmux's own words on a dead pane aside."""
    lines = (clean_line(row.decode("utf-8", "replace")).strip() for row in reversed(rows))
    return next((line for line in lines if line and not line.startswith(TMUX_SAYS)), "")
