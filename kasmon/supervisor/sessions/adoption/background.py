"""Adopt background sessions of Claude Code: list them, and show one of them as a session, in a terminal.

Claude Code's service keeps running them. A session of kasmon is one screen of such a session: it ends without it.
"""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from kasmon.backends.common.claude_background import ATTACH, CLAUDE, attached_id, list_background
from kasmon.backends.common.environment import inherited, own_prefixes
from kasmon.config import Config, resolve
from kasmon.errors import LaunchError, RefusedError
from kasmon.host.rpc.event_loop import run_in_thread
from kasmon.model.adoption.background_session import BackgroundSession, find_background
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.session_state import ALIVE
from kasmon.paths import Paths
from kasmon.store.session_reader import load_launch
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.sessions import session_operations
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.names import width_cells

NAME_CELLS: Final = 40
"""A wider name of a background session is cut, in terminal cells: a number may have to follow it."""


async def list_sessions(paths: Paths, config: Config) -> tuple[BackgroundSession, ...]:
    """Return the background sessions of the profile `claude`, those that a session of kasmon shows marked so.

    Raises `AgentNotFoundError` if claude is not installed, `UnavailableError` if it does not list them.
    """
    return (await run_in_thread(_read, paths, config, os.environ))[1]


async def adopt_background(paths: Paths, config: Config, target: str, name: str = "") -> tuple[SessionId, str]:
    """Show the background session that *target* means as a session named *name*; return its id and its name.

    By default it has the beginning of the background session's name, with a number behind it if that is taken. It is
    in the root folder if the folder of the background session no longer exists.

    Raises:
        NotFoundError, UsageError: if that is none, or several.
        RefusedError: if a session shows it already; or if an agent calls this.
        KasmonError: as `list_sessions`, and as `session_operations.create`.
    """
    await run_in_thread(check_is_person, paths, "adopt a background session")
    program, listed = await run_in_thread(_read, paths, config, os.environ)
    found = find_background(target, listed)
    if found.adopted:
        raise RefusedError(f"{found.label!r} is already adopted as {found.adopted!r}.")
    new = NewSession(
        name=name or _cut(found.label),
        agent=CLAUDE,
        argv=(program, ATTACH, found.id),
        workdir=found.workdir if await run_in_thread(os.path.isdir, found.workdir) else "/",
        worktree=False,
        sandbox="",
    )
    if name:
        return await session_operations.create(paths, config, new), name
    return await session_operations.create_with_free_name(paths, config, new)


def _cut(name: str) -> str:
    """Return the beginning of *name* that `NAME_CELLS` can hold."""
    while width_cells(name) > NAME_CELLS:
        name = name[:-1]
    return name.strip()


def _read(paths: Paths, config: Config, around: Mapping[str, str]) -> tuple[str, tuple[BackgroundSession, ...]]:
    resolved = resolve(config, CLAUDE, Mode.TMUX, sandbox="", environment=around)
    variables = inherited(own_prefixes((CLAUDE,)), around) | resolved.environment
    shown = _find_shown(paths)
    listed = list_background(resolved.argv[0], variables)
    return resolved.argv[0], tuple(msgspec.structs.replace(one, adopted=shown.get(one.id, "")) for one in listed)


def _find_shown(paths: Paths) -> dict[str, SessionId]:
    """Return the background sessions that running sessions show, by their ids."""
    shown: dict[str, SessionId] = {}
    for session in read_fleet(paths).here:
        if session.mode is Mode.TMUX and session.state in ALIVE and session.agent == CLAUDE:
            try:
                launch = load_launch(paths, session.id)
            except (LaunchError, OSError):
                continue
            if found := attached_id(CLAUDE, launch.argv):
                shown[found] = session.id
    return shown
