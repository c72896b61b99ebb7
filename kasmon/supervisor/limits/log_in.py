"""The log-in that an agent offers in a terminal: it runs in a session of its own, then the agent's session restarts.

A process with the variables of the one that began it waits for that (`kasmon host --log-in`); it needs no dashboard.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from kasmon.backends.common.environment import load_variables
from kasmon.config import Config
from kasmon.errors import KasmonError, RefusedError, SessionNotFoundError, UnableError, UnavailableError, UsageError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.host.rpc.locked_process import begin_process
from kasmon.host.rpc.spawn import spawn_log_in
from kasmon.model.commands import Mode, TerminalLogIn
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession, as_given
from kasmon.supervisor.sessions.start import leave_notice

LOST_S: Final = 60.0
"""How long a log-in may be lost without having ended, in seconds: its host may start again."""
LONGEST_STEM: Final = 50
"""How much of the session's name that of its log-in has, in characters."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Do as `finish_log_in`; *argv* are the ids of the session and of its log-in."""
    if len(argv) != 2:
        return UsageError.exit_code
    paths = begin_process()
    try:
        asyncio.run(finish_log_in(paths, SessionId(argv[0]), SessionId(argv[1])))
    except KasmonError as error:
        log.warning("%s", error)
        return error.exit_code
    return 0


async def begin_log_in(paths: Paths, config: Config, session: Session, shown: TerminalLogIn) -> str:
    """Start the log-in *shown* that the agent of *session* offers, in a terminal; return the name of that session.

    It has the folder and the variables of *session*, which a process restarts once the log-in has ended well.

    Raises:
        UnavailableError: if that process cannot be started; the log-in runs then.
        RefusedError: if an agent requests it, or the agent of *session* requires no log-in, or another one by now.
        UnableError: if its log-in would not be that of a terminal of this machine.
        KasmonError: as `session_operations.create`.
    """
    await run_in_thread(check_is_person, paths, "log in")
    log_in = session.log_in
    if log_in is None:
        raise RefusedError(f"the agent of {session.label!r} requires no log-in that runs in a terminal.")
    if log_in != shown:
        raise RefusedError(f"the agent of {session.label!r} offers another log-in by now.", hint="Look at it again.")
    if session.via or session.sandbox:
        raise UnableError(f"the agent of {session.label!r} runs elsewhere: a log-in here is not its own.")
    launch = await run_in_thread(load_launch, paths, session.id)
    own = await run_in_thread(load_variables, paths, session.id)
    secret, public = as_given(own | log_in.variables, {*launch.public_variables, *log_in.variables})
    new = NewSession(
        name=f"login-{session.name[:LONGEST_STEM]}",
        argv=log_in.argv,
        mode=Mode.TMUX,
        workdir=launch.workdir,
        worktree=False,
        environment=secret,
        public_environment=public,
        log_in_of=session.id,
    )
    made, name = await session_operations.create_with_free_name(paths, config, new)
    try:
        await run_in_thread(spawn_log_in, paths, session.id, made)
    except OSError as error:
        raise UnavailableError(
            f"{session.label!r} will not restart after its log-in {name!r}: {error.strerror or error}.",
            hint=f"Restart it yourself then: `kasmon restart {session.id}`.",
        ) from error
    return name


async def finish_log_in(paths: Paths, session: SessionId, log_in: SessionId) -> None:
    """Wait for the end of its *log_in*, and restart *session*, unless it was removed or works again already.

    After that its own session is removed from the list. What failed is also logged: in *session*, or in that of the
    log-in where *session* has a host.

    Raises:
        KasmonError: if the log-in failed or was removed, or *session* cannot be restarted.
    """
    try:
        async with fleets(paths) as changes:
            ended = await find_end(changes, log_in)
        now = (await run_in_thread(read_fleet, paths)).get(session)
        if now is None or now.log_in is None:
            return
        if ended.exit_code != 0:
            how = f"with exit code {ended.exit_code}" if ended.exit_code is not None else "without an exit code"
            raise KasmonError(f"the log-in {ended.name!r} ended {how}.", hint=f"{now.label!r} was not restarted.")
        await session_operations.restart(paths, now, force=now.state in ALIVE)
    except KasmonError as error:
        text = f"The agent was not restarted after its log-in: {error}"
        if not await run_in_thread(leave_notice, paths, session, text):
            await run_in_thread(leave_notice, paths, log_in, text)
        raise
    await list_entry.forget(paths, ended)


async def find_end(changes: AsyncIterator[Fleet], log_in: SessionId) -> Session:
    """Return the session *log_in* once it has ended, or was lost for `LOST_S`. Raises `SessionNotFoundError`."""
    loop = asyncio.get_running_loop()
    lost: Session | None = None
    try:
        async with asyncio.timeout(None) as limit:
            async for fleet in changes:
                now = fleet.get(log_in)
                if now is None:
                    raise SessionNotFoundError(log_in)
                if now.state is SessionState.ENDED:
                    return now
                if now.state is not SessionState.LOST:
                    lost = None
                    limit.reschedule(None)
                elif lost is None:
                    lost = now
                    limit.reschedule(loop.time() + LOST_S)
    except TimeoutError:
        if lost is not None:
            return lost
        raise
    raise AssertionError("the changes of a fleet never end")
