"""Opens agents in panes of kasmon's tmux server, and recovers those that already run there."""

import asyncio
import time
from collections.abc import Mapping

from kasmon.agents.catalog import catalog
from kasmon.asyncio_tasks import TaskSet
from kasmon.backends.base import Abilities
from kasmon.backends.common import agent_start
from kasmon.backends.common.agent_version import refuse_in_terminal, version_of
from kasmon.backends.common.claude_background import attached_id
from kasmon.backends.common.environment import program_of
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.agent_sandbox import AgentSandbox, find_sandbox
from kasmon.backends.tmux.evidence.hook_setup import why_not
from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.evidence.process_evidence import ProcessEvidence
from kasmon.backends.tmux.evidence.process_scan import ProcessScanner
from kasmon.backends.tmux.evidence.screen_reader import ScreenReader
from kasmon.backends.tmux.evidence.state_monitor import StateMonitor
from kasmon.backends.tmux.readiness import LIMIT_S, PaneReadiness
from kasmon.backends.tmux.remote import RemoteAgent, start_remote_agent
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.spawn import remove_launch_files, spawn
from kasmon.config import Remote, Tmux
from kasmon.errors import RefusedError
from kasmon.model.commands import Launch
from kasmon.model.events import ConnectionRestored, NoticeRaised, SignalSeen
from kasmon.model.evidence import Signal
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_line
from kasmon.tmux.control import requests as ask
from kasmon.tmux.formats import CreatedPane, PaneFacts
from kasmon.tmux.process_identity import ProcessIdentity, identify
from kasmon.tmux.remote import agent as remote
from kasmon.tmux.remote.ssh import RemoteMachine, ssh_environment
from kasmon.tmux.server import TmuxServer


class TmuxBackend:
    """All sessions of one kasmon in one tmux server, read through one connection. For one running loop."""

    name = "tmux"
    owns = True
    """Whether its panes are kasmon's own, so that it resizes, renames and ends them."""
    abilities = Abilities(attaches=True, interrupts=True, continues=True, shares_host=True)

    def __init__(
        self, where: Paths | None = None, settings: Tmux | None = None, elsewhere: Remote | None = None
    ) -> None:
        """*where*: the server and the sessions' folders; by default taken from the environment when first needed."""
        self._where = where
        self._settings = settings or Tmux()
        self._elsewhere = elsewhere or Remote()
        self._line: ServerConnection | None = None
        self._readiness: PaneReadiness | None = None
        self._screen_reader: ScreenReader | None = None
        self._process_scanner: ProcessScanner | None = None
        self._tasks = TaskSet()

    @property
    def paths(self) -> Paths:
        """The folders of its server and its sessions."""
        if self._where is None:
            self._where = user_paths()
        return self._where

    @property
    def line(self) -> ServerConnection:
        """The connection to kasmon's tmux server; not open before the first agent is."""
        if self._line is None:
            self._line = ServerConnection(
                TmuxServer(self.paths.tmux_socket, history_lines=self._settings.history_limit)
            )
        return self._line

    async def open(
        self, launch: Launch, /, variables: Mapping[str, str] | None = None, *, lives_on: bool = False
    ) -> TmuxAgent:
        """Start the agent that *launch* describes in the background, and kasmon's tmux server if it does not run.

        *variables* are those of the requesting process: the agent gets the common ones and its own. None or empty means
        those of this process.

        A session that had a pane gets it again, otherwise a window beside `launch.parent`'s, otherwise a tmux session
        of its own. The agent is not ready yet: an event reports that. *lives_on*: it runs on its machine, or did
        lately; it is only displayed again.

        Raises:
            LaunchError: if the launch names no program, another machine does not start it, or the version of its
                program may not run in a terminal.
            RemoteUnreachableError: if that machine cannot be reached.
            RefusedError: if the session's pane is in use.
            TmuxMissingError, TmuxTooOldError: if there is no usable tmux.
            TmuxCommandError, TmuxServerGoneError: if tmux fails.
        """
        await self.line.open()
        panes = await self.line.panes()
        had = panes.get(launch.session)
        if had is not None and not had.is_dead:
            raise RefusedError(f"session {launch.session!r} is already running.", hint="Stop it first, or restart it.")
        if had is not None:
            self.line.listeners.forget(had.pane_id)
        if not launch.machine and launch.sandbox in (None, "jail"):
            await asyncio.to_thread(refuse_in_terminal, launch.argv, launch.agent)
        if launch.machine and not lives_on:
            elsewhere, history = self._machine(launch), self._settings.history_limit
            await asyncio.to_thread(start_remote_agent, elsewhere, launch, self.paths, history)
        has_hooks = await asyncio.to_thread(_has_hooks, launch)
        await self._load_screen_reader()  # from the program's start on, await nothing until its pane is listened to
        ssh = self._elsewhere.ssh
        made = await asyncio.to_thread(spawn, self.line.server, self.paths, launch, panes, variables, ssh)
        output_monitor = OutputMonitor(asyncio.get_running_loop().time())
        name = clean_line(launch.window or launch.name) or launch.session
        self.line.submit(ask.rename(made.pane.window_id, name))  # for display only, so without a reply
        agent = await self._agent(launch, made.pane, made.process, output_monitor, made.nonce, sandbox=made.sandbox)
        agent.name_prompts_by(has_hooks=has_hooks)
        agent.brackets.begin()
        agent.say(
            ConnectionRestored(at=time.time(), pid=agent.pid) if lives_on else agent.record_start(launch.generation)
        )
        self._tasks.start(self._await_ready(agent, launch, made.nonce))
        return agent

    async def is_alive(self, launch: Launch) -> bool:
        """Whether the agent of *launch* runs on its machine. Raises `RemoteUnreachableError` if that is not known."""
        machine = self._machine(launch)
        return (await asyncio.to_thread(remote.state, machine, launch.session, ssh_environment())).state == "runs"

    def _machine(self, launch: Launch) -> RemoteMachine:
        return RemoteMachine(launch.machine, self._elsewhere.ssh)

    async def recover(self, launch: Launch, facts: PaneFacts, signals: tuple[Signal, ...]) -> TmuxAgent:
        """Return the agent that already runs in the pane of *facts*, started by an earlier host.

        *signals* are those in its log. Output since then was not received, so the program's own reports may be
        outdated.
        """
        process = await asyncio.to_thread(identify, facts.pid)
        output_monitor = OutputMonitor(asyncio.get_running_loop().time(), signals)
        sandbox = await asyncio.to_thread(find_sandbox, self.paths, launch)
        agent = await self._agent(launch, facts, process, output_monitor, facts.ready, signals, sandbox)
        agent.name_prompts_by(has_hooks=await asyncio.to_thread(_has_hooks, launch))
        if any(signal.source == "program" and facts.activity_at > int(signal.at) for signal in signals):
            agent.handle_output(b"")
        agent.state_monitor.begin()
        return agent

    async def aclose(self) -> None:
        """Close the connection; all agents keep running. Idempotent."""
        self._tasks.cancel()
        if self._process_scanner is not None:
            await self._process_scanner.aclose()
            self._process_scanner = None
        if self._line is not None:
            await self._line.aclose()

    async def _agent(
        self,
        launch: Launch,
        pane: CreatedPane | PaneFacts,
        process: ProcessIdentity | None,
        output_monitor: OutputMonitor,
        nonce: str,
        signals: tuple[Signal, ...] = (),
        sandbox: AgentSandbox | None = None,
    ) -> TmuxAgent:
        """Return the agent in *pane*, monitored by every source that can report its state."""
        screen_reader = await self._load_screen_reader()
        program = await asyncio.to_thread(program_of, launch.argv, launch.agent)  # reads folders of agents
        self._process_scanner = scanner = self._process_scanner or ProcessScanner(screen_reader)
        evidence = ProcessEvidence(
            program,
            pane.pid,
            self.paths.folder(launch.session),
            launch.generation,
            nonce,
            sandbox,
            attached_id(program, launch.argv),
        )
        monitor = StateMonitor(
            launch.session, program, self.line, pane.pane_id, evidence, screen_reader, scanner, signals
        )
        agent: TmuxAgent
        if launch.machine:
            agent = RemoteAgent(self._machine(launch), nonce, launch, self.line, pane, process, output_monitor, monitor)
        else:
            agent = TmuxAgent(launch, self.line, pane, process, output_monitor, monitor)
        self._tasks.start(self._find_version(agent, launch))
        return agent

    async def _load_screen_reader(self) -> ScreenReader:
        if self._screen_reader is None:
            screen_reader = ScreenReader((self.paths.config / "screens",), catalog(self.paths))
            await asyncio.to_thread(screen_reader.refresh)
            self._screen_reader = screen_reader
        return self._screen_reader

    async def _find_version(self, agent: TmuxAgent, launch: Launch) -> None:
        """Ask the agent's program for its version, where rules depend on it."""
        program = await asyncio.to_thread(program_of, launch.argv, launch.agent)
        if self._screen_reader is not None and self._screen_reader.rules(program, "") is not None:
            version = await asyncio.to_thread(version_of, launch.argv)
            agent.state_monitor.version = agent.state_monitor.version or version

    async def _await_ready(self, agent: TmuxAgent, launch: Launch, nonce: str) -> None:
        if isinstance(agent, RemoteAgent):
            await agent.wait_until_connected()
            await asyncio.to_thread(remove_launch_files, self.paths, launch)
            return
        if self._readiness is None:
            self._readiness = PaneReadiness(self.line)
        facts = await self._readiness.wait_for_pane(launch.session, nonce)
        await asyncio.to_thread(remove_launch_files, self.paths, launch)
        if facts is None and not self.line.is_open:
            return
        if facts is None:
            agent.say(SignalSeen(at=time.time(), source="launch", value="late"))
            text = f"It did not report that it is ready within {LIMIT_S:g} s."
            agent.say(NoticeRaised(at=time.time(), text=text, level="warning"))
        elif facts.is_dead:
            agent.handle_pane_facts(facts)
        else:
            await agent_start.wait_for_start(launch, agent.pid, self.paths)
            agent.begin_monitoring()


def _has_hooks(launch: Launch) -> bool:
    """Whether the agent of *launch* is started with kasmon's hooks. Blocks: its program may be run for its version."""
    is_ours = launch.adopted is None and not launch.machine
    return is_ours and not why_not(program_of(launch.argv, launch.agent), launch.argv)


backend = TmuxBackend()
