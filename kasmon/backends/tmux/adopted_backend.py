"""Agents in panes of the user's own tmux: detected, read and typed to, but never started, resized, renamed or ended."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kasmon.agents.catalog import catalog
from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.config import Tmux
from kasmon.errors import LaunchError, NotFoundError, TmuxServerGoneError
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.commands import Launch
from kasmon.paths import Paths
from kasmon.tmux.foreign_server import ForeignHub, ForeignServer
from kasmon.tmux.formats import PaneFacts
from kasmon.tmux.pane_listing import candidates
from kasmon.tmux.process_identity import ProcessIdentity, identify


class AdoptedConnection(ServerConnection):
    """The connection to one of the user's tmux servers; open only while a pane of it is adopted."""

    def __init__(self, server: ForeignServer) -> None:
        self._foreign = ForeignHub(server)
        super().__init__(server, self._foreign)
        self._owners: dict[str, str] = {}
        """Pane -> the session that adopted it."""

    def adopt(self, session: str, pane: str) -> None:
        self._owners[pane] = session
        self._foreign.adopt(pane)

    def release(self, pane: str) -> None:
        self._owners.pop(pane, None)
        self._foreign.release(pane)

    async def open(self) -> None:
        """Attach to the server; idempotent.

        Raises:
            TmuxServerGoneError: if it does not run.
            TmuxCommandError: if no adopted pane exists.
        """
        if not await self.attach():
            raise TmuxServerGoneError(str(self.server.socket))

    async def panes(self) -> dict[str, PaneFacts]:
        server = self.server
        assert isinstance(server, ForeignServer)
        all_panes = await asyncio.to_thread(server.everywhere)
        return {self._owners[facts.pane_id]: facts for facts in all_panes if facts.pane_id in self._owners}


class AdoptedBackend(TmuxBackend):
    """All adopted sessions of one server, read through one passive control client."""

    owns = False

    def __init__(self, where: Paths, settings: Tmux, socket: Path) -> None:
        super().__init__(where, settings)
        self._line = self._foreign_line = AdoptedConnection(ForeignServer(socket, where.runtime))

    @property
    def line(self) -> AdoptedConnection:
        """The connection to the user's tmux server."""
        return self._foreign_line

    async def open(
        self, launch: Launch, /, variables: Mapping[str, str] | None = None, *, lives_on: bool = False
    ) -> TmuxAgent:
        """Monitor the program in the pane that *launch* names.

        Raises:
            LaunchError: if the pane belongs to another server now, or its program has ended.
            TmuxServerGoneError, TmuxCommandError: if there is no such server or pane.
        """
        facts = await self.pane(launch)
        if facts is None or facts.is_dead:
            raise LaunchError(f"the pane of {launch.name!r} no longer exists, or its program has ended.")
        process = await asyncio.to_thread(identify, facts.pid)
        output_monitor = OutputMonitor(asyncio.get_running_loop().time())
        agent = await self._agent(launch, facts, process, output_monitor, "")
        agent.name_prompts_by(has_hooks=False)
        agent.say(agent.record_start(launch.generation))
        agent.begin_monitoring()
        return agent

    async def pane(self, launch: Launch) -> PaneFacts | None:
        """Return the pane of *launch*, with its output received from now on; None if it does not exist.

        Raises:
            TmuxServerGoneError: if its server is gone, or another one has replaced it.
            TmuxError: if tmux does not answer.
        """
        adopted = launch.adopted
        assert adopted is not None
        server_process = await asyncio.to_thread(self.line.server.process)
        if server_process is None or server_process != ProcessIdentity(adopted.server_pid, adopted.server_started):
            raise TmuxServerGoneError(adopted.socket)
        self.line.adopt(launch.session, adopted.pane)
        facts = (await self.line.panes()).get(launch.session)
        if facts is None:
            self.line.release(adopted.pane)
        else:
            await self.line.open()
        return facts


def list_adoptable_panes(socket: Path, turns: Path) -> tuple[ProcessIdentity, list[AdoptablePane]]:
    """Return the server at *socket* and its panes, with the agents recognised in them. Blocks.

    Raises:
        NotFoundError: if no tmux listens there.
        TmuxError: if it does not answer.
    """
    server = ForeignServer(socket, turns)
    process = server.process()
    if process is None:
        raise NotFoundError(
            f"no tmux server listens at {str(socket)!r}.",
            hint="Pass its socket with --socket; `tmux -L NAME` has its own.",
        )
    found = [msgspec.structs.replace(one, agent=recognise_agent(one.pid)) for one in candidates(server)]
    return process, found


def recognise_agent(pid: int) -> str:
    """Return the agent that runs as process *pid* or below it; empty if none is recognised. Blocks."""
    import psutil  # rarely needed

    try:
        top = psutil.Process(pid)
        processes = [top, *top.children(recursive=True)]
    except psutil.Error:
        return ""
    for process in processes:
        try:
            argv = process.cmdline()
            name = process.name()
        except psutil.Error:
            continue
        for program in (program_of(argv[:6]), name):
            if (known := catalog().get(program)) is not None and not known.login_shell:
                return program
    return ""
