"""Adopt panes of the user's own tmux: list the candidates, and start to monitor one of them as a session."""

import asyncio
import contextlib
import os
import socket as sockets
import time
from pathlib import Path

import msgspec

from kasmon.errors import HostUnreachableError, RefusedError
from kasmon.host.rpc.connect import open_link
from kasmon.host.rpc.frames import ForeignPanes, ListForeignPanes
from kasmon.model.adoption.pane_candidate import AdoptablePane, default_socket, find_pane
from kasmon.model.agent_program import SHELLS
from kasmon.model.commands import AdoptedPane, Launch, Mode
from kasmon.model.events import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.paths import Paths, expanded, write_private
from kasmon.supervisor.sessions.names import announce, check_name, claim_id
from kasmon.supervisor.sessions.start import begin


async def foreign_panes(paths: Paths, socket: str = "") -> tuple[AdoptablePane, ...]:
    """Return the adoptable panes of the user's own tmux at *socket*; empty is the current one, else the default one.

    Raises `NotFoundError` or `TmuxError` if no tmux answers there, `RefusedError` if it is kasmon's own.
    """
    return (await _list_panes(paths, socket)).panes


async def adopt(paths: Paths, target: str, name: str = "", socket: str = "") -> Launch:
    """Adopt the pane that *target* names, see `pane_candidate.find_pane`; *name* defaults to its tmux session's.

    Raises:
        NotFoundError, UsageError: if that is no pane, or several.
        RefusedError: if it is already adopted, or its program has ended; or if an agent calls this.
        NameTakenError: if another session has the name.
        KasmonError: as `begin` raises.
    """
    from kasmon.supervisor.limits.agents import check_is_person  # the dashboard starts without

    await asyncio.to_thread(check_is_person, paths, "adopt a pane")
    listing = await _list_panes(paths, socket)
    pane = find_pane(target, listing.panes)
    if pane.adopted:
        raise RefusedError(f"{pane.target!r} is already adopted as {pane.adopted!r}.")
    if pane.is_dead:
        raise RefusedError(f"the program in {pane.target!r} has ended.")
    agent = pane.agent or pane.command or "shell"
    launch = Launch(
        session=SessionId(""),
        name=check_name(name or pane.session),
        agent=agent,
        mode=Mode.TMUX,
        backend="tmux",
        argv=(agent,),
        is_command=not pane.agent and agent not in {*SHELLS, "shell"},
        workdir=pane.workdir if Path(pane.workdir).is_absolute() else "/",
        adopted=AdoptedPane(
            socket=str(_socket(paths, socket)),
            pane=pane.pane,
            target=pane.target,
            server_pid=listing.server_pid,
            server_started=listing.server_started,
        ),
        created_at=time.time(),
    )
    launch = await asyncio.to_thread(_announce, paths, launch)
    await begin(paths, launch)
    return launch


async def _list_panes(paths: Paths, socket: str) -> ForeignPanes:
    await asyncio.to_thread(paths.make)
    frame = ListForeignPanes(n=0, socket=str(_socket(paths, socket)))
    async with contextlib.aclosing(await open_link(paths, SessionId(""), Mode.TMUX)) as host:
        listing = await host.ask(frame)
    if not isinstance(listing, ForeignPanes):
        raise HostUnreachableError("tmux", "it did not list its panes")
    return listing


def _socket(paths: Paths, socket: str) -> Path:
    if socket:
        return expanded(socket).absolute()
    return default_socket(os.environ, os.getuid(), paths.tmux_socket)


def _announce(paths: Paths, launch: Launch) -> Launch:
    with claim_id(paths) as session:
        launch = msgspec.structs.replace(launch, session=session)
        write_private(paths.launch(session), msgspec.json.encode(launch))
        announce(paths, SessionCreated(at=launch.created_at, launch=launch, machine=sockets.gethostname()))
    return launch
