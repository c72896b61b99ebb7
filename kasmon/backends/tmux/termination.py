"""How an agent's process is ended, and why it ended, from the text on its pane."""

import asyncio
import contextlib
import os
import re
import signal
from typing import Final

from kasmon.asyncio_tasks import wait_within
from kasmon.backends.common.agent_version import LIMIT_S, advised
from kasmon.backends.tmux.evidence.process_table import foreground_of
from kasmon.model.commands import Launch
from kasmon.model.evidence import AT_ONCE
from kasmon.sanitize import clean_line
from kasmon.tmux.control.requests import AnswerLines
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.process_identity import signal as send

DIE_S: Final = 2.0
"""How long a killed process may take to disappear."""
TMUX_SAYS: Final = "Pane is dead"
"""How tmux's own line on a dead pane begins."""
OURS: Final = "kasmon: "
"""How messages of kasmon's launchers begin."""
CANNOT: Final = frozenset({125, 126, 127})
"""Exit codes of a launcher that could not start the agent."""
WRAPPED_ROWS: Final = 20
"""How many rows above the screen may belong to the last line, if that wraps."""
SCROLLED_BY_DEATH: Final = -1
"""tmux's line pushes the screen up by one row, into the history: the agent's first row is this one."""
COMPLAINT: Final = re.compile(
    r"\b(unknown|unrecognized|unexpected|invalid|no such) (option|argument|flag|command|subcommand)s?\b", re.IGNORECASE
)
"""How programs report that they do not understand their command line."""


async def end_group(
    process: ProcessIdentity | None,
    grace_s: float,
    ended: asyncio.Event,
    sandboxed_agent: ProcessIdentity | None = None,
) -> None:
    """End what *process* leads: HUP, as when a terminal is closed, then TERM, then KILL, until *ended* is set.

    With *sandboxed_agent*, the agent in a sandbox, only that is signalled: its launcher would end everything at once.
    """
    steps = [(signal.SIGHUP, grace_s / 2), (signal.SIGTERM, grace_s / 2), (signal.SIGKILL, DIE_S)]
    for number, patience_s in steps if grace_s > 0 else steps[-1:]:
        if sandboxed_agent is not None and number != signal.SIGKILL:
            await asyncio.to_thread(send, sandboxed_agent, number)
        else:
            await asyncio.to_thread(signal_group, process, number)
        if await wait_within(patience_s, ended):
            return


def signal_group(process: ProcessIdentity | None, number: int) -> bool:
    """Send signal *number* to the process group that *process* leads; false if it is gone."""
    if process is None or identify(process.pid) != process:
        return False
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)
        return True
    return False


def continue_group(process: ProcessIdentity | None) -> bool:
    """Send SIGCONT to the group that *process* leads and to its terminal's foreground group; false if it is gone."""
    if process is None or not signal_group(process, signal.SIGCONT):
        return False
    if (front := foreground_of(process.pid)) > 0 and front != process.pid:
        with contextlib.suppress(OSError):
            os.killpg(front, signal.SIGCONT)
    return True


async def cause(
    launch: Launch, rows: AnswerLines, status: int | None, number: int | None, *, is_young: bool, is_starting: bool
) -> str:
    """Return why the agent of *launch* ended, from an exit code or signal and the last *rows* of its pane; empty if the
    code or signal is explanation enough.

    *is_young*: it had hardly started. *is_starting*: it had shown no state yet, so that a complaint about its command
    line is its own.
    """
    line, rejection = last_line(rows), complaint(rows)
    if status and (is_young or (is_starting and rejection)):
        return await _explain_early_end(launch, rejection, line)
    if status in CANNOT and line.startswith(OURS):
        return line.removeprefix(OURS)  # its sandbox's launcher took longer than a young agent's time
    return "it ended; tmux has no exit status" if status is None and number is None else ""


async def _explain_early_end(launch: Launch, rejection: str, line: str) -> str:
    """Return why it ended right after its start; its message is *rejection*, or else *line*."""
    message = (rejection or line).removeprefix(OURS)
    why = f"{AT_ONCE}: {message}" if message else AT_ONCE
    advice = ""
    if rejection and not launch.machine:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                advice = await asyncio.to_thread(advised, launch.argv)
    return f"{why.rstrip('.')}. {advice}" if advice else why


def last_line(rows: AnswerLines) -> str:
    """Return the last non-empty row, sanitized, except tmux's own line on a dead pane."""
    lines = (_clean(row) for row in reversed(rows))
    return next((line for line in lines if line and not line.startswith(TMUX_SAYS)), "")


def complaint(rows: AnswerLines) -> str:
    """Return the first row in which a program rejects its command line, sanitized; else empty."""
    return next((line for line in map(_clean, rows) if COMPLAINT.search(line)), "")


def _clean(row: bytes) -> str:
    return clean_line(row.decode("utf-8", "replace")).strip()
