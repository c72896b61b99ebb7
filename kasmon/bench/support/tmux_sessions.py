"""Real tmux sessions for the measurements, created through the same operations as any, in scratch folders."""

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
from kasmon.supervisor.sessions.create import NewSession
from kasmon.supervisor.sessions.session_operations import create
from kasmon.tmux.server import TmuxServer

AT_ONCE = 8
PROGRAMS = Path(__file__).parents[1] / "programs"
"""The folder of the programs for the panes."""


@contextlib.contextmanager
def terminals(programs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[tuple[Paths, list[SessionId]]]:
    """Run each of *programs* (name, argv) in a pane, in scratch folders; all end with the context."""
    with scratch() as paths:
        yield paths, asyncio.run(_create(paths, programs))


def program(name: str, *arguments: str) -> list[str]:
    """Return the command line of one of the bench's programs."""
    return [sys.executable, "-I", "-S", str(PROGRAMS / f"{name}.py"), *arguments]


def agent_program(folder: Path, agent: str, name: str, *arguments: str) -> list[str]:
    """Return the command line of a program of the bench under the name *agent*, by which kasmon recognises it."""
    python = folder / agent
    if not python.exists():
        python.symlink_to(sys.executable)
    return [str(python), *program(name, *arguments)[1:]]


def below(paths: Paths) -> list[int]:
    """Return the pids of the tmux host and of the tmux server, without the programs in the panes."""
    host = lock_holder(paths.tmux_host_lock)
    server = TmuxServer(paths.tmux_socket).process()
    return [pid for pid in (host, server.pid if server else None) if pid]


async def _create(paths: Paths, programs: Sequence[tuple[str, Sequence[str]]]) -> list[SessionId]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, argv: Sequence[str]) -> SessionId:
        async with turn:
            return await create(paths, Config(), NewSession(name=name, mode=Mode.TMUX, argv=tuple(argv), workdir="/"))

    return list(await asyncio.gather(*(one(name, argv) for name, argv in programs)))
