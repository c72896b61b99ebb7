"""Detect a terminal program that exits right after its start, so that the starting command can report it."""

import asyncio
import time
from typing import Final

import psutil

from kasmon import launch
from kasmon.host.journal.session_log import advanced, begun
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths

LIMIT_S: Final = 1.0
"""A program that is busy for this long counts as running, in seconds."""
REST_S: Final = 0.1
"""A program that waits for this long counts as running, in seconds."""
LOOK_S: Final = 0.02
UP: Final = frozenset({SessionState.IDLE, SessionState.ASKING, SessionState.LIMITED})
RESTING: Final = frozenset({psutil.STATUS_SLEEPING, psutil.STATUS_STOPPED, psutil.STATUS_IDLE})


async def find_early_exit(places: Paths, session: SessionId) -> Session | None:
    """Return the session, just started, if it has already ended; None as soon as its program is known to run.

    A structured agent has already completed its handshake, so this does not wait.
    """
    before = await asyncio.to_thread(begun, places, session)
    deadline = time.monotonic() + LIMIT_S
    resting_since: float | None = None
    while True:
        now, _ = await asyncio.to_thread(advanced, places, before)
        if now.state is SessionState.ENDED:
            return now
        at = time.monotonic()
        resting_since = (resting_since or at) if await asyncio.to_thread(_is_resting, now.pid) else None
        is_up = now.state in UP or (resting_since is not None and at - resting_since >= REST_S)
        if is_up or now.mode is not Mode.TMUX or at > deadline:
            return None
        await asyncio.sleep(LOOK_S)


def _is_resting(pid: int | None) -> bool:
    """Whether a pane's program is waiting, and is no longer kasmon's launcher."""
    try:
        process = psutil.Process(pid) if pid else None
        return process is not None and process.status() in RESTING and launch.__file__ not in process.cmdline()
    except psutil.Error:
        return False
