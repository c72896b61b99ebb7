"""Hibernate a session, after the proof that its conversation can be resumed; and that proof again before a resume."""

import asyncio
import os
import time

from kasmon.backends.codex.shared_server import find_screen
from kasmon.backends.common.environment import program_of
from kasmon.config.agent_address import machine_of
from kasmon.errors import NotHibernatedError, SessionEndedError, TimedOutError
from kasmon.host.rpc.event_loop import run_in_thread, sleep
from kasmon.model.commands import Hibernate, Mode
from kasmon.model.events import ConnectionLost, SessionEnded
from kasmon.model.formatting import mb
from kasmon.model.hibernation import find_obstacle
from kasmon.model.sandbox.policy import REMEMBERING
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.store.session_reader import load_launch, read_events
from kasmon.supervisor.fleet.new_events import NewEvents
from kasmon.supervisor.fleet.process_usage import find_root, read_memory, read_processes
from kasmon.supervisor.fleet.snapshot import read_session
from kasmon.supervisor.hibernation.obstacles import REPORTS_TOOLS, find_first_tool, find_first_work, find_running
from kasmon.supervisor.machines.dispatch import dispatch
from kasmon.supervisor.recovery.sessions import find_conversation
from kasmon.supervisor.sessions.session_operations import ENDING_S, execute
from kasmon.supervisor.sessions.start import can_resume


@dispatch
async def hibernate(paths: Paths, session: Session) -> str:
    """End the agent of an idle session until its next use, and describe what that freed; a sandbox is paused instead.

    Raises:
        NotHibernatedError: if something waits for the agent or was left running by it, or its conversation could not
            be resumed.
        SessionEndedError, HostUnreachableError: if it does not run.
        TimedOutError: if the end of the agent was not logged in time.
        KasmonError: as `run_there`, for a session of another machine; as `sandbox_operations.pause`, for a sandbox.
    """
    if session.sandbox is not None:
        if session.state not in (SessionState.PAUSED, SessionState.STANDBY) and (why := find_obstacle(session)):
            raise NotHibernatedError(session.name, why)
        return await run_in_thread(_pause, paths, session)
    runs = session.state in ALIVE and not session.is_orphaned
    freed = await run_in_thread(_check, paths, session) if runs else 0  # else the command is refused
    facts = await run_in_thread(NewEvents, paths, session.id)
    try:
        await execute(paths, session, Hibernate(freed_bytes=freed))
    except SessionEndedError:
        if (now := await run_in_thread(read_session, paths, session.id)).freed_bytes is None:
            raise
        raise NotHibernatedError(session.name, find_obstacle(now)) from None  # another process was faster
    deadline = time.monotonic() + ENDING_S
    while not any(isinstance(event, SessionEnded | ConnectionLost) for event in await run_in_thread(facts.more)):
        if time.monotonic() > deadline:
            raise TimedOutError(f"session {session.name!r} was asked to hibernate but its agent has not ended yet.")
        await sleep(0.02)
    return f"hibernated, {mb(freed)} of memory freed"


@hibernate.elsewhere
async def _hibernate_there(paths: Paths, session: Session) -> str:
    from kasmon.supervisor.machines.delegation import run_there  # only for sessions of other machines

    await run_there(paths, session, "hibernate", session.id, until=lambda now: now is None or not now.exists)
    return ""


def check_resumable(paths: Paths, session: Session) -> str:
    """Return what proves that the conversation of *session* can be resumed. Blocks. Raises `NotHibernatedError`."""
    launch = load_launch(paths, session.id)
    is_known = can_resume(program_of(launch.argv)) if launch.mode is Mode.TMUX else "resumes" in session.abilities
    if not is_known:
        raise NotHibernatedError(session.name, "kasmon cannot resume the conversation of its agent by id")
    if not session.resume_id:
        raise NotHibernatedError(session.name, "its agent has not reported the id of its conversation")
    match = find_conversation(paths, session, launch, (), only=session.resume_id)
    if match.kind != "proven":
        raise NotHibernatedError(session.name, match.why)
    return match.why


def _check(paths: Paths, session: Session) -> int:
    """Return the memory of the processes of *session*, in bytes. Blocks. Raises `NotHibernatedError`."""
    if why := find_obstacle(session) or _find_reader(paths, session) or _find_screen(paths, session):
        raise NotHibernatedError(session.name, why)
    check_resumable(paths, session)
    if session.pid is not None:
        events = list(read_events(paths, session.id))
        reports = session.mode is Mode.SDK and session.program in REPORTS_TOOLS
        tool_at = find_first_tool(events) if reports else None
        if why := find_running(session.pid, find_first_work(events), session.program, tool_at):
            raise NotHibernatedError(session.name, why)
    root, tree = find_root(session), read_processes()
    return 0 if root is None else read_memory(tree.below(root, frozenset({os.getpid()})), tree)


def _find_reader(paths: Paths, session: Session) -> str:
    """Return where the agent of *session* runs, or what reads its end, if that is no part of it; else empty."""
    if machine := machine_of(session.agent):
        return f"its agent runs on {machine}"
    if not session.plan:
        return ""
    plan_log = PlanLog(paths, session.plan)
    has_ended = not plan_log.more() or plan_log.run.state == "ended"
    return "" if has_ended else f"plan {session.plan!r} has not ended, and would count its task as failed"


def _find_screen(paths: Paths, session: Session) -> str:
    """Return which process shows the agent's own screen, which counts as used; empty if none does."""
    pid = find_screen(paths.shared_server(session.id)) if session.mode is Mode.SDK else None
    return "" if pid is None else f"its agent's own screen is open (process {pid})"


def _pause(paths: Paths, session: Session) -> str:
    from kasmon.supervisor.sandboxes import sandbox_operations  # only where there is a sandbox

    to_disk = session.sandbox in REMEMBERING
    asyncio.run(sandbox_operations.pause(paths, session, to_disk=to_disk))
    return "its sandbox is paused" + (", its memory saved to disk" if to_disk else "")
