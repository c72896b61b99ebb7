"""The log-in that an agent offers in a terminal: it runs in a session of its own, then the agent's session restarts."""

from typing import Final

from kasmon.backends.common.environment import load_variables
from kasmon.config import Config
from kasmon.errors import KasmonError, RefusedError, UnableError
from kasmon.host.rpc.event_loop import in_thread
from kasmon.model.commands import Mode, TerminalLogIn
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState
from kasmon.paths import Paths
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import wait_for
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.sessions import list_entry, session_operations
from kasmon.supervisor.sessions.create import NewSession, as_given

OVER: Final = frozenset({SessionState.ENDED, SessionState.LOST})
LONGEST_STEM: Final = 50
"""How much of the session's name that of its log-in has, in characters."""


async def begin_log_in(places: Paths, config: Config, session: Session, shown: TerminalLogIn) -> str:
    """Start the log-in *shown* that the agent of *session* offers, in a terminal; return the name of that session.

    It has the folder and the variables of *session*.

    Raises:
        RefusedError: if an agent requests it, or the agent of *session* requires no log-in, or another one by now.
        UnableError: if its log-in would not be that of a terminal of this machine.
        KasmonError: as `session_operations.create`.
    """
    await in_thread(check_is_person, places, "log in")
    log_in = session.log_in
    if log_in is None:
        raise RefusedError(f"the agent of {session.label!r} requires no log-in that runs in a terminal.")
    if log_in != shown:
        raise RefusedError(f"the agent of {session.label!r} offers another log-in by now.", hint="Look at it again.")
    if session.via or session.sandbox:
        raise UnableError(f"the agent of {session.label!r} runs elsewhere: a log-in here is not its own.")
    launch = await in_thread(load_launch, places, session.id)
    own = await in_thread(load_variables, places, session.id)
    secret, public = as_given(own | log_in.variables, {*launch.public_variables, *log_in.variables})
    new = NewSession(
        name=f"login-{session.name[:LONGEST_STEM]}",
        argv=log_in.argv,
        mode=Mode.TMUX,
        workdir=launch.workdir,
        worktree=False,
        environment=secret,
        public_environment=public,
    )
    return (await session_operations.create_with_free_name(places, config, new))[1]


async def finish_log_in(places: Paths, session: SessionId, name: str) -> str:
    """Wait for the end of the log-in session *name*, restart *session*, and return a sentence for the user.

    After a successful log-in its session is removed from the list.

    Raises:
        KasmonError: if the log-in failed, or *session* cannot be restarted.
    """
    fleet = await in_thread(read_fleet, places)
    log_in = next((each.id for each in fleet.sessions if each.name == name), None)
    if log_in is None:  # it was renamed or removed
        return ""
    (ended,) = await wait_for(places, [log_in], OVER)
    now = (await in_thread(read_fleet, places)).get(session)
    if now is None or now.log_in is None:  # it was removed, or works again already
        return ""
    if ended.exit_code != 0:
        how = f"with exit code {ended.exit_code}" if ended.exit_code is not None else "without an exit code"
        raise KasmonError(f"the log-in {name!r} ended {how}.", hint=f"{now.label!r} was not restarted.")
    await list_entry.forget(places, ended)
    await session_operations.restart(places, now, force=now.state in ALIVE)
    return f"{now.label}: logged in, and restarted."
