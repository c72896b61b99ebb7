"""Which session's agent a process belongs to. The system's processes decide, never what a process says of itself.

A process can set any environment for those that it starts. So a session's id in an environment counts only if that
process is the one that the session's log names as its agent.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kasmon import system
from kasmon.errors import LaunchError, RefusedError
from kasmon.host.rpc.peer import MOST, find_relatives
from kasmon.launch import RUN, SESSION
from kasmon.model.commands import FLEET_TOOLS, ActingAgent
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.process_identity import is_running
from kasmon.sanitize import clean_line
from kasmon.store.session_reader import load_launch

LONGEST_MACHINE: Final = 255
_ID: Final = re.compile(r"[a-z0-9]{1,64}", re.ASCII)


def find_actor(paths: Paths, pid: int) -> ActingAgent | None:
    """Return the agent that process *pid* belongs to; None if nothing shows that it belongs to one. Blocks.

    For an agent's process whose session is not certain, it has no session. A process that deliberately loses its
    parents, its session and its environment is not recognised, as in `peer.evidence`.
    """
    is_agents = False
    for each, variables in _environments(pid):
        is_agents = is_agents or SESSION in variables or RUN in variables
        if (session := variables.get(SESSION, "")) and _is_agent_of(paths, session, each):
            return ActingAgent(session=SessionId(session), depth=find_depth(paths, SessionId(session)))
    return ActingAgent(session=SessionId("")) if is_agents else None


def find_claimed_session(pid: int) -> SessionId:
    """Return the session that the environment of *pid*, or of the nearest process above it with one, names. Blocks.

    Empty if none does. No process shows that it is true, as it does of what `find_actor` returns.
    """
    claims = (variables.get(SESSION, "") for _, variables in _environments(pid))
    return SessionId(next(filter(None, claims), ""))


def declared(actor: ActingAgent | None) -> ActingAgent | None:
    """Return *actor* as a client states it: None unless it may be an agent of another machine.

    Agents of this machine are found by `find_actor` alone.
    """
    is_possible = actor is not None and 0 < len(actor.machine) <= LONGEST_MACHINE and _ID.fullmatch(actor.session)
    return actor if is_possible else None


def require_actor(paths: Paths, pid: int, action: str) -> ActingAgent:
    """Return the agent that process *pid* belongs to. Blocks. *action*: what it wants to do, for the message.

    Raises:
        RefusedError: if it belongs to none, or it is not certain to which.
    """
    actor = find_actor(paths, pid)
    if actor is None:
        raise RefusedError(
            f"cannot {action}: this process belongs to no session's agent.",
            hint="Only the agent of a session of kasmon can do it: start that agent with `kasmon new`.",
        )
    if not actor.is_identified:
        raise RefusedError(
            f"cannot {action}: this process belongs to an agent, and it is not certain to which.",
            hint="Start it as a child of the agent's own process, not in the background of the system.",
        )
    return actor


def require_leader(paths: Paths, actor: ActingAgent, session: SessionId) -> None:
    """Raise unless *actor* has the fleet tools, and it, or an agent below it, started *session*. Blocks.

    Raises:
        RefusedError: if it does not.
    """
    from kasmon.store.starters import find_ancestors, read_starters  # few hosts get a proposal

    with contextlib.suppress(LaunchError):
        is_allowed = FLEET_TOOLS in load_launch(paths, actor.session).tools
        if is_allowed and actor.session in find_ancestors(session, read_starters(paths))[1:]:
            return
    raise RefusedError(
        f"this agent cannot propose to finish session {session!r}.",
        hint="Only an agent with the fleet tools can do it, for the sessions that it or those started.",
    )


def require_started_elsewhere(paths: Paths, session: SessionId) -> None:
    """Raise unless an agent of another machine started *session*, or a session above it. Blocks.

    Raises:
        RefusedError: if none did.
    """
    from kasmon.store.starters import find_starter_elsewhere, read_starters  # few hosts get a proposal

    if find_starter_elsewhere(session, read_starters(paths)) is None:
        raise RefusedError(f"no agent of another machine started session {session!r}.")


def find_depth(paths: Paths, session: SessionId) -> int:
    """Return how many agents are above *session*: 0 if a person or a plan started it, or its files are gone."""
    try:
        actor = load_launch(paths, session).actor
    except LaunchError:
        return 0
    return 0 if actor is None else actor.depth + 1


def find_name(paths: Paths, actor: ActingAgent) -> str:
    """Return the name that the session of *actor* was last started with; empty if that is unknown. Blocks."""
    try:
        return clean_line(load_launch(paths, actor.session).name) if actor.is_identified else ""
    except LaunchError:
        return ""


def _environments(pid: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield *pid* and the processes above it, the nearest first, each with its initial environment."""
    todo, seen = [pid], set[int]()
    while todo and len(seen) < MOST:
        each = todo.pop(0)
        if each <= 1 or each in seen:
            continue
        seen.add(each)
        yield each, system.HERE.read_variables(each)
        todo += find_relatives(each)


def _is_agent_of(paths: Paths, session: str, pid: int) -> bool:
    """Return whether the log of *session* names *pid* as the process of its agent, and it still is."""
    if not _ID.fullmatch(session) or not Path(paths.launch(SessionId(session))).is_file():
        return False
    known = _read_session(paths, SessionId(session))
    return known is not None and known.pid == pid and is_running(pid, known.pid_started, known.pid_boot)


def _read_session(paths: Paths, session: SessionId) -> Session | None:
    from kasmon.store.fleet_cache import load_cache  # loads SQLite, and few prompts are agents'
    from kasmon.store.fleet_index import FleetIndex

    index = FleetIndex(paths)
    load_cache(paths.index, index)
    try:
        index.read_fleet()
        if session not in index.sessions:
            return None
        index.read_session(session)
    except OSError:
        return None
    return index.sessions[session].session
