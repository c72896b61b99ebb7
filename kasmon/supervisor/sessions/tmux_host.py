"""Restart the shared tmux host for sessions that lost it: their agents run in tmux and may continue without it."""

import asyncio
import contextlib
from collections.abc import Iterable

from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.supervisor.fleet.liveness import HOST_GONE


def without_host(sessions: Iterable[Session]) -> list[Session]:
    """Return the tmux sessions here whose host is gone and whose logs do not show that they ended or were lost.

    Only a new host can find out whether their panes still exist, and with which exit code an agent ended.
    """
    return [each for each in sessions if not each.via and lacks_host(each)]


def lacks_host(session: Session) -> bool:
    """Whether *session*, on whatever machine, is in tmux and has no host, and its log does not show its end."""
    is_gone = (
        session.mode is Mode.TMUX and session.host is not None and not session.host.alive and not session.is_unreachable
    )
    is_lost = session.state is SessionState.LOST and session.end_why == HOST_GONE
    return is_gone and (session.state is SessionState.UNSURE or is_lost)


async def bring_back(paths: Paths) -> bool:
    """Start the shared tmux host if none runs, and wait until it answers; return whether it was started."""
    if await asyncio.to_thread(lock_holder, paths.tmux_host_lock) is not None:
        return False
    async with contextlib.aclosing(await open_link(paths, SessionId("tmux"), Mode.TMUX)):
        return True
