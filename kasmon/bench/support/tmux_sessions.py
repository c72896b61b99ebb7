"""Real tmux sessions for the measurements: started through the same verbs as anybody's, in scratch places."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kasmon.bench.support.fleet import scratch
from kasmon.config import Config
from kasmon.host.rpc.host_lock import lock_holder
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.supervisor.sessions.operations import NewSession, create
from kasmon.tmux.server import TmuxServer

AT_ONCE = 8
PROGRAMS = Path(__file__).parents[1] / "programs"
"""What runs in the panes."""


@contextlib.contextmanager
def terminals(programs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[tuple[Paths, list[SessionId]]]:
    """Scratch places in which each of *programs* (name, argv) runs in a pane; all ended at the end."""
    with scratch() as where:
        yield where, asyncio.run(_create(where, programs))


def program(name: str, *arguments: str) -> list[str]:
    """The command line of one of the bench's own programs."""
    return [sys.executable, "-I", "-S", str(PROGRAMS / f"{name}.py"), *arguments]


def below(where: Paths) -> list[int]:
    """The pids of the tmux host and of the tmux server; not of what runs in the panes."""
    host = lock_holder(where.tmux_host_lock)
    server = TmuxServer(where.tmux_socket).process()
    return [pid for pid in (host, server.pid if server else None) if pid]


async def _create(where: Paths, programs: Sequence[tuple[str, Sequence[str]]]) -> list[SessionId]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, argv: Sequence[str]) -> SessionId:
        async with turn:
            return await create(where, Config(), NewSession(name=name, mode=Mode.TMUX, argv=tuple(argv), workdir="/"))

    return list(await asyncio.gather(*(one(name, argv) for name, argv in programs)))
