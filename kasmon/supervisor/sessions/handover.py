"""Ask a structured host of any version to hand over: finish the agent's turn and end, so that another resumes it.

Only a process that matches the one in the log, by id, start time and boot, is ever signalled.
"""

import contextlib
import os
import signal
import time
from typing import Final

from kasmon.errors import HostUnreachableError, RefusedError, TimedOutError
from kasmon.host.rpc.control import HAND_OVER_S, ControlKind, HostStatus
from kasmon.host.rpc.control import request as request_host
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.host.rpc.frames import VERSION
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.process_identity import is_running

GRACE_S: Final = 3.0
"""How long a process may take to end by itself, in seconds."""


def end_orphan(pid: int | None, started: float | None, of_boot: str = "") -> bool:
    """End the process *pid* that started at *started* in boot *of_boot*, if it still runs, with what it started.

    Returns whether it is gone. Blocks for 2 * GRACE_S and a second at most.
    """
    if pid is None or started is None or pid <= 1 or not is_running(pid, started, of_boot):
        return True
    from kasmon.backends.common.process_family import family_of  # loads psutil, and is rarely needed

    handle, family = _handle(pid), family_of(pid)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_S
            if is_running(pid, started, of_boot):
                _send(handle, pid, number)
            while is_running(pid, started, of_boot) and time.monotonic() < deadline:
                time.sleep(0.02)
        if is_running(pid, started, of_boot):
            return False
        family.end()
        return True
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """Return a pidfd of the process, since its pid may be reused; None if the system has none."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def _send(handle: int | None, pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)


LOOK_S = 0.1
"""How often to check whether the host has ended, in seconds."""


async def request(paths: Paths, session: Session, kind: ControlKind) -> HostStatus | None:
    """Send *kind* to the structured host of *session*; None if it is older than control requests."""
    return await run_in_thread(request_host, paths.socket(session.id), kind)


async def speaks_other_version(paths: Paths, session: Session) -> bool:
    """Whether the structured host of *session* runs, and reports another protocol version than this kasmon's."""
    with contextlib.suppress(HostUnreachableError, TimedOutError):
        status = await request(paths, session, ControlKind.STATUS)
        return status is not None and status.protocol != VERSION
    return False


async def hand_over(paths: Paths, session: Session, limit_s: float = HAND_OVER_S) -> None:
    """Have the structured host of *session* finish the agent's turn and end; return when it has ended.

    Raises:
        RefusedError: if the agent could not be resumed, or has an open request: only its own version can answer that.
        TimedOutError: if the turn did not end within *limit_s* seconds. The host still hands over when it ends.
        KasmonError: if the host does not answer.
    """
    lock, deadline = paths.host_lock(session.id), time.monotonic() + limit_s
    status = await request(paths, session, ControlKind.HAND_OVER)
    while await run_in_thread(lock_holder, lock) is not None:
        with contextlib.suppress(HostUnreachableError, TimedOutError):
            status = await request(paths, session, ControlKind.STATUS) or status
        if status is None:
            raise RefusedError(f"the host of session {session.name!r} is too old to hand over.")
        if status.is_asking:
            raise RefusedError(
                f"session {session.name!r} has a pending request, which only kasmon {status.kasmon} can answer.",
                hint=f"Answer it with that version; or end the turn with `kasmon stop {session.id}` and resume the "
                f"conversation with `kasmon restart {session.id}`.",
            )
        if time.monotonic() > deadline:
            raise TimedOutError(
                f"session {session.name!r} is in a turn under a host of kasmon {status.kasmon}, "
                "which hands over when the turn ends.",
                hint=f"Try again after the turn; `kasmon stop {session.id}` ends it now.",
            )
        await sleep(LOOK_S)
