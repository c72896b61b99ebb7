"""Agents on other machines: started there, shown by ssh in a local pane, and running on when ssh disconnects.

The end of the pane's ssh shows nothing about the agent: the machine is asked. If that fails, the connection is lost
and the agent is not.
"""

import asyncio
import contextlib
import re
import time
from typing import Final

from kasmon.backends.common.child_process import signal_name
from kasmon.backends.common.environment import load_variables
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.evidence.output_monitor import OutputMonitor
from kasmon.backends.tmux.evidence.state_monitor import StateMonitor
from kasmon.backends.tmux.readiness import LIMIT_S
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.backends.tmux.termination import SCROLLED_BY_DEATH
from kasmon.config.agent_address import folder_of
from kasmon.errors import KasmonError, LaunchError, RemoteUnreachableError, SessionEndedError
from kasmon.model.commands import AgentCommand, Launch, Stop
from kasmon.model.events import ConnectionLost, NoticeRaised, SessionEnded, SignalSeen
from kasmon.model.task import environment
from kasmon.paths import Paths
from kasmon.sanitize import clean_line
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import AnswerLines
from kasmon.tmux.formats import CreatedPane, PaneFacts
from kasmon.tmux.process_identity import ProcessIdentity
from kasmon.tmux.remote import agent
from kasmon.tmux.remote.agent import RemoteStart, saw_marker
from kasmon.tmux.remote.ssh import LOST, RemoteMachine, ssh_environment

LONGEST_MARKER: Final = 128
SEARCHED: Final = 500
SEARCH_S: Final = 1.0
"""How many scrolled-off lines are searched for a marker whose output was missed."""
SAYS: Final = re.compile(
    r"(?:Timeout, server|Connection (?:to|closed|reset)|client_loop|ssh: |Read from remote|kex_|Host key|packet_"
    r"|[^ ]+: Permission denied|\[(?:detached|lost|server|terminated|too))"
)
"""How the lines begin that ssh, or the tmux there, leaves on a pane when it ends."""


class RemoteAgent(TmuxAgent):
    """The agent that *launch* describes, on *machine*; its pane shows it once the marker of *nonce* was printed."""

    def __init__(
        self,
        machine: RemoteMachine,
        nonce: str,
        launch: Launch,
        line: ServerConnection,
        pane: CreatedPane | PaneFacts,
        process: ProcessIdentity | None,
        output_monitor: OutputMonitor,
        state_monitor: StateMonitor,
    ) -> None:
        self._machine, self._nonce = machine, nonce
        self._tail = b""
        self._connected = asyncio.Event()
        super().__init__(launch, line, pane, process, output_monitor, state_monitor)

    async def wait_until_connected(self) -> None:
        """Report that it is ready once its pane shows it, or that this takes long; return at its end too."""
        over = [asyncio.create_task(event.wait()) for event in (self._connected, self._ended)]
        deadline = self._loop.time() + LIMIT_S
        while self._loop.time() < deadline and not (self._connected.is_set() or self.has_ended):
            self._search_screen()  # what the pane prints before its window is linked to the hub does not come as output
            await asyncio.wait(over, timeout=SEARCH_S, return_when=asyncio.FIRST_COMPLETED)
        for task in over:
            task.cancel()
        if self._connected.is_set():
            self.begin_monitoring()
        elif not self.has_ended:
            self.say(SignalSeen(at=time.time(), source="launch", value="late"))
            text = f"{self._machine.host!r} did not connect within {LIMIT_S:g} s."
            self.say(NoticeRaised(at=time.time(), text=text, level="warning"))

    async def send(self, command: AgentCommand, /) -> None:
        """Send a command as `TmuxAgent.send`; a stop goes to the other machine.

        Raises:
            RemoteUnreachableError: if the other machine cannot be reached.
        """
        if isinstance(command, Stop):
            if self.has_ended:
                raise SessionEndedError(self._launch.session)
            await self._stop_remotely(command.grace_s)
            self._why = self._why or "stopped"
        else:
            await super().send(command)

    def handle_output(self, data: bytes) -> None:
        super().handle_output(data)
        if self._connected.is_set() or not self._nonce:
            return
        if not data:  # output was missed
            self._search_screen()
            return
        self._tail += data
        self._find_marker(self._tail.splitlines())
        self._tail = self._tail[-LONGEST_MARKER:]

    def _search_screen(self) -> None:
        if self._nonce:
            self._line.submit(ask.capture(self.pane, start=-SEARCHED, ansi=False), self._find_marker)

    def _find_marker(self, rows: AnswerLines | KasmonError) -> None:
        if not isinstance(rows, KasmonError) and saw_marker(rows, self._nonce):
            self._connected.set()

    async def _report_death(self, status: int | None, number: int | None) -> None:
        if number is not None or status in (None, LOST):
            self._cut(await self._ssh_end() or (f"ssh was ended by {signal_name(number)}" if number else "ssh ended"))
            return
        try:
            answer = await asyncio.to_thread(
                agent.state, self._machine, self._launch.session, ssh_environment(), tidy=True
            )
        except RemoteUnreachableError as error:
            self._cut(error.why)
            return
        if answer.state == "runs":
            self._cut(await self._ssh_end() or "the pane's connection ended")
        elif answer.state == "gone":
            why = self._why or f"it no longer exists on {self._machine.host!r}, and its exit status is unknown"
            self._end(SessionEnded(at=time.time(), why=why))
        else:
            ended = SessionEnded(
                at=time.time(), exit_code=answer.exit_code, signal=signal_name(answer.signal), why=self._why
            )
            self._end(ended)

    def _cut(self, why: str) -> None:
        self._end(ConnectionLost(at=time.time(), what="remote line", why=why))

    async def _ssh_end(self) -> str:
        """Return ssh's message about its end, if it is on the pane."""
        rows: list[bytes] = []
        with contextlib.suppress(KasmonError):
            rows = await self._line.ask(ask.capture(self.pane, start=SCROLLED_BY_DEATH, ansi=False))
        lines = [clean_line(row.decode("utf-8", "replace")).strip() for row in rows]
        return next((line.rstrip(".") for line in reversed(lines) if SAYS.match(line)), "")

    def _stop(self, why: str, grace_s: float) -> None:
        self._why = self._why or why

        async def stop() -> None:
            with contextlib.suppress(KasmonError):
                await self._stop_remotely(grace_s)

        self._tasks.start(stop())

    async def _stop_remotely(self, grace_s: float) -> None:
        await asyncio.to_thread(agent.stop, self._machine, self._launch.session, grace_s, ssh_environment())


def start_remote_agent(machine: RemoteMachine, launch: Launch, where: Paths, history_lines: int) -> None:
    """Start the agent of *launch* on *machine*, unless it runs. Blocks.

    Of variables it gets its session's own and kasmon's, and none of this machine's.

    Raises:
        RemoteUnreachableError: if there is no connection.
        LaunchError: if it cannot be started there.
    """
    start = RemoteStart(
        session=launch.session,
        argv=launch.argv,
        folder=folder_of(launch.machine, launch.workdir),
        variables=load_variables(where, launch.session) | environment(launch),
        history_lines=history_lines,
    )
    try:
        agent.start(machine, start, ssh_environment())
    except ValueError as error:
        raise LaunchError(f"session {launch.name!r} cannot be started: {error}.") from error
