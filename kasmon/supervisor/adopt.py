"""A session of the user's own tmux is watched from now on: its panes are listed when asked, and one is adopted."""

import asyncio
import contextlib
import os
import socket as sockets
import time
from pathlib import Path

import msgspec

from kasmon.errors import HostUnreachableError, RefusedError
from kasmon.host.client import link
from kasmon.host.wire import Foreign, ForeignPanes
from kasmon.model.candidate import Candidate, default_socket, meant
from kasmon.model.command import Adopted, Launch, Mode
from kasmon.model.event import SessionCreated
from kasmon.model.permission import SessionId
from kasmon.paths import Places, expanded, write_private
from kasmon.supervisor.begin import begin
from kasmon.supervisor.claim import claimed
from kasmon.supervisor.names import announce, proper


async def foreign_panes(places: Places, socket: str = "") -> tuple[Candidate, ...]:
    """What could be adopted of the user's own tmux at *socket*; empty is the one that this runs in, else the usual one.

    Raises:
        NotFoundError, TmuxError: if no tmux answers there.
        RefusedError: if that is kasmon's own.
    """
    return (await _seen(places, socket)).panes


async def adopt(places: Places, target: str, name: str = "", socket: str = "") -> Launch:
    """Watch the pane that *target* means, see `model.candidate.meant`; *name* is by default its tmux session's.

    Raises:
        NotFoundError, UsageError: if that is no pane, or several.
        RefusedError: if it is watched already, or its program has ended.
        NameTakenError: if another session is called so.
        KasmonError: as `begin` does.
    """
    seen = await _seen(places, socket)
    pane = meant(target, seen.panes)
    if pane.adopted:
        raise RefusedError(f"{pane.target!r} is adopted already, as {pane.adopted!r}.")
    if pane.is_dead:
        raise RefusedError(f"the program in {pane.target!r} has ended.")
    agent = pane.agent or pane.command or "shell"
    launch = Launch(
        session=SessionId(""),
        name=proper(name or pane.session),
        agent=agent,
        mode=Mode.TMUX,
        backend="tmux",
        argv=(agent,),
        workdir=pane.workdir if Path(pane.workdir).is_absolute() else "/",
        adopted=Adopted(
            socket=str(_socket(places, socket)),
            pane=pane.pane,
            target=pane.target,
            server_pid=seen.server_pid,
            server_started=seen.server_started,
        ),
        created_at=time.time(),
    )
    launch = await asyncio.to_thread(_known, places, launch)
    await begin(places, launch)
    return launch


async def _seen(places: Places, socket: str) -> ForeignPanes:
    await asyncio.to_thread(places.make)
    frame = Foreign(n=0, socket=str(_socket(places, socket)))
    async with contextlib.aclosing(await link(places, SessionId(""), Mode.TMUX)) as host:
        seen = await host.ask(frame)
    if not isinstance(seen, ForeignPanes):
        raise HostUnreachableError("tmux", "it did not say what panes there are")
    return seen


def _socket(places: Places, socket: str) -> Path:
    if socket:
        return expanded(socket).absolute()
    return default_socket(os.environ, os.getuid(), places.tmux_socket)


def _known(places: Places, launch: Launch) -> Launch:
    """*launch* with its id, its folder there and the fleet told."""
    with claimed(places) as session:
        launch = msgspec.structs.replace(launch, session=session)
        write_private(places.launch(session), msgspec.json.encode(launch))
        announce(places, SessionCreated(at=launch.created_at, launch=launch, machine=sockets.gethostname()))
    return launch
