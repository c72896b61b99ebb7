"""The host of one structured session: a process that runs its agent, logs its events, and executes commands."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon import __version__
from kasmon.backends import load
from kasmon.backends.base import Abilities, Agent, Backend
from kasmon.config import Config, load_or_default
from kasmon.errors import (
    InteractiveOnlyError,
    KasmonError,
    LaunchError,
    LogMissingError,
    NotHibernatedError,
    RefusedError,
    SessionEndedError,
    SessionNotFoundError,
    UnableError,
    UsageError,
)
from kasmon.host.journal.async_writer import LAST_WORDS_S, WRITTEN_S, LogWriter
from kasmon.host.journal.known_secrets import add_secrets
from kasmon.host.journal.secrets import secrets_of
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc import frames
from kasmon.host.rpc.control import ControlKind, HostStatus
from kasmon.host.rpc.host_lock import HostLock
from kasmon.host.rpc.locked_process import begin_process
from kasmon.host.rpc.peer import must_be_a_person
from kasmon.host.rpc.server import ClientConnection, HostServer
from kasmon.host.sandboxed.mcp_server import GONE, server_gone
from kasmon.host.session.agent_services import first_prompt
from kasmon.host.session.prompt_images import store_images
from kasmon.host.session.prompts import REST_LOOK_S
from kasmon.host.structured.agent_runner import StructuredAgentRunner
from kasmon.host.structured.live_text import execute
from kasmon.model.commands import (
    Allow,
    Answer,
    Checkpoint,
    Command,
    Configure,
    Continue,
    Fork,
    Hibernate,
    Interrupt,
    Launch,
    Mode,
    Pause,
    Prompt,
    Requeue,
    Restore,
    Resume,
    Run,
    Stop,
)
from kasmon.model.events import HibernationBegun, SessionEnded
from kasmon.model.hibernation import find_obstacle
from kasmon.model.permission import SessionId
from kasmon.model.reducers.lifecycle import HANDED_OVER
from kasmon.model.sandbox.policy import RunResult
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.sanitize import HIDDEN
from kasmon.store.event_log import Cursor, EventLog
from kasmon.store.session_reader import load_launch

ANSWER_MARGIN_S: Final = 5.0
"""How much longer than its agent this host may take to answer."""
STOPPED = "stopped"
"""The `end_why` of a session that the user stopped; `Session.stopped` reads it."""
REMOVED = "its folder was removed"
ARGUMENTS = re.compile(r"(?P<session>[a-z0-9][a-z0-9-]{0,63})(?: --since (?P<since>[0-9]{1,18}))?")

log = logging.getLogger(__name__)

REMOVAL_CHECK_S: Final = 5.0
"""The interval of checks. Only a folder missing in two checks was removed: it may be missing for a moment."""


class StructuredHost:
    """The host of the session that *launch* describes. The caller holds the host's lock."""

    def __init__(self, paths: Paths, launch: Launch, backend: Backend, config: Config | None = None) -> None:
        self._paths = paths
        self._launch = launch
        self._backend = backend
        self._config = config or Config()
        self._limits = self._config.limits
        self._id = launch.session
        self._end_why = ""
        self.leaves_sandbox = False
        """Whether it ended for the next host, which recovers the interpreters' sandbox: none of that may be closed."""
        self._handing_over: asyncio.Task[None] | None = None
        self._shell_commands: set[asyncio.Task[int]] = set()
        self._sandbox_left = asyncio.Event()
        self._server: HostServer
        self._log_writer: LogWriter
        self._agent: StructuredAgentRunner
        self._running = False

    async def run(self) -> bool:
        """Run until the agent has ended; false if there never was one."""
        session_log = await asyncio.to_thread(SessionLog, self._paths, self._id)
        self._log_writer = LogWriter(session_log)
        self._agent = StructuredAgentRunner(
            self._log_writer, self._next_launch(session_log), self._backend, self._limits.call_s
        )
        self._running = True
        server = HostServer(self._paths.socket(self._id), self._receive, self._agent.live.unwatch, self._control)
        self._server = server
        self._agent.services.watch_over(self._config, written_at=lambda: self._agent.live.written_at)
        leaving = asyncio.create_task(self._leave_once_removed())
        ending = asyncio.create_task(self._leave_with_its_server())
        try:
            if (prompt := first_prompt(session_log.session, self._launch, "idle")) is not None:
                self._agent.prompts.queue(prompt)
            if self._end_why:
                self._agent.end(self._end_why, 0)
            if await self._listen(server):
                await self._run_agent()
        finally:
            if self._handing_over is not None:
                self._handing_over.cancel()
            leaving.cancel()
            ending.cancel()
            await self._agent.services.aclose(is_over=False)
            self._agent.live.end(self._log_writer.session.end_why)
            await self._log_writer.wait_for_write(WRITTEN_S)
            await server.aclose()
            await self._agent.prompts.aclose()
            await self._log_writer.aclose(LAST_WORDS_S if self._end_why else None)
        return self._agent.opened

    def end(self, why: str) -> None:
        """End the agent cleanly, then this host; on a second call, at once."""
        again, self._end_why = bool(self._end_why), self._end_why or why
        if self._running:
            self._agent.end(self._end_why, 0.0 if again else Stop().grace_s)

    async def _run_agent(self) -> None:
        """Run until the agent has ended, or its interpreter sandbox is left to the next host."""
        living = asyncio.create_task(self._agent.run_agent())
        leaving = asyncio.create_task(self._sandbox_left.wait())
        await asyncio.wait([living, leaving], return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        self.leaves_sandbox = not living.done()
        if living.done():
            await living

    def _control(self, kind: ControlKind) -> HostStatus:
        """Execute a control request. Raises `RefusedError` if the agent's conversation would be lost by that."""
        if kind is ControlKind.STOP:
            self._agent.end(STOPPED, Stop().grace_s)
        elif kind is ControlKind.HAND_OVER and self._handing_over is None:
            self._check_resumable()
            self._handing_over = asyncio.create_task(self._hand_over())
        state = self._log_writer.session.state
        return HostStatus(
            protocol=frames.VERSION,
            kasmon=__version__,
            pid=os.getpid(),
            session=self._id,
            is_busy=not self._is_at_rest,
            is_asking=state is SessionState.ASKING,
            is_leaving=self._handing_over is not None or self._agent.has_ended,
        )

    def _check_resumable(self) -> None:
        """Check that the next host could resume the agent's conversation. Raises `RefusedError` if no host could."""
        session = self._log_writer.session
        if self._launch.mode is Mode.INTERPRETER or not session.turns:
            return
        if not (self._backend.abilities.resumes and session.resume_id):
            raise RefusedError(
                f"the agent of session {self._id!r} cannot be resumed by id, so its host cannot hand over.",
                hint=f"`kasmon stop {self._id}` stops it, `kasmon restart {self._id}` starts it again.",
            )

    @property
    def _is_at_rest(self) -> bool:
        return not self._server.is_working and (self._launch.mode is Mode.INTERPRETER or self._agent.prompts.is_at_rest)

    async def _hand_over(self) -> None:
        """Leave the session to a host of another version, once the turn has ended and no request is in progress."""
        if self._launch.mode is not Mode.INTERPRETER:
            await self._agent.prompts.rest()
        for running in self._shell_commands:  # they may take a day
            running.cancel()
        while True:
            if not self._server.is_working:
                break
            await asyncio.sleep(REST_LOOK_S)
        if self._launch.mode is Mode.INTERPRETER:
            self._sandbox_left.set()
        else:
            self.end(HANDED_OVER)

    async def _leave_once_removed(self) -> None:
        await wait_for_removal(self._paths.folder(self._id))
        log.warning("the folder of session %s was removed: its agent is ended", self._id)
        await self._log_writer.abandon()
        self.end(REMOVED)

    async def _leave_with_its_server(self) -> None:
        """End when its `kasmon mcp` server has exited: a killed server cannot end its sessions itself."""
        if self._launch.mode is Mode.INTERPRETER and await server_gone(self._paths, self._id, self._launch.name):
            self.end(GONE)

    def _next_launch(self, session_log: SessionLog) -> Launch:
        """Return the launch for this run. After an earlier host, the next generation resumes its conversation."""
        generation = max(self._launch.generation, session_log.session.generation + 1)
        resume = self._launch.resume or (session_log.session.resume_id if generation > 1 else None)
        prompt = self._launch.prompt if generation == 1 else ""
        return msgspec.structs.replace(
            self._launch,
            generation=generation,
            resume=resume,
            prompt=prompt,
            fork=self._launch.fork if generation == 1 else None,
            remembers=session_log.last_prompt if resume and HIDDEN not in session_log.last_prompt else "",
            handshake_s=self._limits.handshake_s,
        )

    async def _listen(self, server: HostServer) -> bool:
        try:
            await server.start()
        except OSError as error:
            why = f"its host cannot listen at {str(self._paths.socket(self._id))!r}: {error.strerror}"
            await self._agent.handle_event(SessionEnded(at=time.time(), why=why, never_began=True))
            return False
        return True

    async def _store_images(self, prompt: Prompt) -> Prompt:
        if not prompt.images:
            return prompt
        if not self._backend.abilities.receives_images:
            raise UnableError(f"the agent of session {self._id!r} accepts no pictures.")
        return await asyncio.to_thread(store_images, self._paths, self._id, prompt)

    def _receive(
        self, connection: ClientConnection, frame: frames.FromClient
    ) -> Awaitable[frames.Frame | None] | frames.Frame | None:
        match frame:
            case frames.Hello():
                answer_s = self._limits.call_s + ANSWER_MARGIN_S
                return frames.Welcome(n=frame.n, pid=os.getpid(), kasmon=__version__, answer_s=answer_s)
            case frames.ExecuteCommand():
                if frame.session != self._id:
                    raise SessionNotFoundError(frame.session)
                return self._execute(connection, frame)
            case frames.ReportContext() | frames.RecordComment() | frames.RecordPeerMessage() | frames.ProposeFinish():
                return self._record(connection, frame)
            case frames.RunShellCommand():
                return self._run_shell_command(connection, frame)
            case frames.Watch():
                self._agent.live.watch(connection, frame.rate_hz)
            case frames.Unwatch():
                self._agent.live.unwatch(connection)
            case frames.Quit():
                if connection.as_agent:
                    raise RefusedError("an agent cannot end its host.")
                self._agent.end(STOPPED, Stop().grace_s)
                return frames.CommandResult(n=frame.n)
            case frames.StartSession() | frames.ReleasePane() | frames.RenameWindow():
                return frames.CommandResult(n=frame.n)
            case frames.DescribePane() | frames.ReadTerminal():
                raise InteractiveOnlyError(self._id)
            case _:
                pass
        return None

    async def _record(self, connection: ClientConnection, frame: frames.LogRequest) -> frames.CommandResult:
        if frame.session != self._id:
            raise SessionNotFoundError(frame.session)
        self._must_run()
        await self._agent.services.record(frame, connection.peer_pid)
        return frames.CommandResult(n=frame.n)

    async def _run_shell_command(
        self, connection: ClientConnection, frame: frames.RunShellCommand
    ) -> frames.CommandResult | None:
        """Run it, until it or the connection ends, or this host leaves the session to the next."""
        from kasmon.host.rpc.spawn import build_host_environment  # rarely needed
        from kasmon.host.session.shell_command import run_in_folder

        if frame.session != self._id:
            raise SessionNotFoundError(frame.session)
        self._must_run()
        await self._check_person(connection, "run commands of the person")
        leaves = UnableError("the host of the session is being replaced by one of another version: run it again.")
        if self._handing_over is not None:
            raise leaves

        def report(text: str) -> None:
            connection.push(frames.RunOutputChunk(run="shell", stdout=text))

        shown, _ = build_host_environment(self._paths, os.environ)  # not the variables kept for the agent
        running = asyncio.create_task(run_in_folder(self._launch.workdir, frame.command, report, shown))
        self._shell_commands.add(running)
        try:
            await asyncio.wait([running, connection.closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            await asyncio.wait([running])
            self._shell_commands.discard(running)
        if running.cancelled():
            if connection.is_open:
                raise leaves
            return None
        return frames.CommandResult(n=frame.n, ran=RunResult(exit_code=running.result()))

    async def _execute(self, connection: ClientConnection, frame: frames.ExecuteCommand) -> frames.CommandResult:
        receipt = None
        if (sandboxed_agent := self._agent.services.sandboxed_agent) is not None and isinstance(
            frame.command, Pause | Resume
        ):
            self._must_run()
            await sandboxed_agent.lifecycle.move(frame.command)
            return frames.CommandResult(n=frame.n)
        if sandboxed_agent is not None:
            await sandboxed_agent.lifecycle.ensure_running(frame.command)
        await self._check_sender(frame.command, connection.peer_pid)
        match frame.command:
            case Prompt() as prompt:
                self._must_run()
                if self._handing_over is not None and prompt.when in ("now", "interrupt"):
                    prompt = msgspec.structs.replace(prompt, when="idle")  # it waits for the next host
                prompt = await self._store_images(prompt)
                prompt = await self._agent.services.add_actor(prompt, connection.peer_pid)
                receipt = await self._agent.prompts.submit(prompt)
            case Answer() as answer:
                if not self._backend.abilities.asks and not self._agent.requests.is_own(answer.request):
                    raise UnableError(f"the agent of session {self._id!r} accepts no answers.")
                await self._agent.answer(answer, connection.peer_pid, is_agents=connection.as_agent)
            case Interrupt() as interrupt:
                self._must_run()
                if not self._backend.abilities.interrupts:
                    raise UnableError(f"the agent of session {self._id!r} cannot be interrupted.")
                await self._agent.send(interrupt)
            case Continue() as proceed:
                self._must_run()
                if not self._backend.abilities.continues:
                    raise UnableError(f"session {self._id!r} has no terminal in which Ctrl+Z could suspend its agent.")
                await self._agent.send(proceed)
            case Stop() as stop:
                self._must_run()
                self._agent.end(STOPPED, stop.grace_s)
            case Hibernate() as hibernate:
                if self._log_writer.session.freed_bytes is None:  # else the reason is that
                    self._must_run()
                await self._hibernate(hibernate)
            case Requeue() as requeue:
                receipt = self._agent.prompts.requeue(requeue)
            case Configure() as configure:
                self._must_run()
                await self._check_settings(connection, configure)
                await self._agent.send(configure)
            case Run() | Pause() | Resume() | Checkpoint() | Restore() | Fork() | Allow() as command:
                self._must_run()
                if isinstance(command, Allow):
                    await self._check_person(connection, "allow network access")
                done = await execute(await self._agent.wait_for_sandboxed(), connection, frame.n, command)
                await self._log_writer.wait_for_write(WRITTEN_S)
                return done
        await self._log_writer.wait_for_write(WRITTEN_S)
        return frames.CommandResult(n=frame.n, receipt=receipt)

    async def _check_sender(self, command: Command, pid: int) -> None:
        """Log which agent's process *pid* is, if it stops or interrupts this session; refuse what only a person does.

        Raises:
            RefusedError: if it changes a queued prompt, and an agent may not.
        """
        match command:
            case Requeue():
                await self._agent.services.check_requeue(command, pid)
            case Stop() | Interrupt() if isinstance(command, Stop) or self._backend.abilities.interrupts:
                self._must_run()
                await self._agent.services.record_actor(command, pid)
            case _:
                pass

    async def _check_person(self, connection: ClientConnection, action: str) -> None:
        agent, is_agents = self._log_writer.session.pid, connection.as_agent
        await must_be_a_person(connection.peer_pid, agent, is_agents=is_agents, action=action)

    async def _check_settings(self, connection: ClientConnection, configure: Configure) -> None:
        can = self._backend.abilities
        for value, able, what in (
            (configure.model, can.sets_model, "model"),
            (configure.permission_mode, can.sets_permission_mode, "permission mode"),
        ):
            if value is not None and not able:
                raise UnableError(f"the {what} of session {self._id!r} cannot be changed while it runs.")
        if unknown := configure.switches.keys() - {each.id for each in self._log_writer.session.switches}:
            raise UnableError(f"the agent of session {self._id!r} has no option {min(unknown)!r} that is on or off.")
        if configure.permission_mode is not None:
            await self._check_person(connection, "change a permission mode")
        if configure.switches:  # such an option can be a permission
            await self._check_person(connection, "change an option of an agent")

    async def _hibernate(self, command: Hibernate) -> None:
        """End the agent; the log has first that it is hibernated by that. From then on it accepts nothing.

        Raises:
            RefusedError: if something waits for it, or its conversation could not be resumed.
        """
        session = self._log_writer.session
        is_busy = self._handing_over is not None or not self._agent.prompts.is_at_rest
        if why := find_obstacle(session) or ("it is being prompted" if is_busy else ""):
            raise NotHibernatedError(session.name or self._id, why)
        self._check_resumable()
        self._log_writer.note(HibernationBegun(at=time.time(), freed_bytes=command.freed_bytes), durable=True)
        await self._log_writer.wait_for_disk()
        self._agent.end(STOPPED, Stop().grace_s)

    def _must_run(self) -> None:
        if self._agent.has_ended or self._log_writer.session.freed_bytes is not None:
            raise SessionEndedError(self._id)


class UnavailableBackend:
    """Replaces a backend that cannot be loaded: opening an agent raises the reason."""

    name = ""
    abilities = Abilities()

    def __init__(self, error: KasmonError) -> None:
        self._error = error

    async def open(self, launch: Launch, /) -> Agent:
        raise self._error


def main(argv: Sequence[str]) -> int:
    """Host the session whose id is the first argument, until its agent ends.

    Return 0 also if it has a host already, or had one meanwhile: `--since CURSOR` is the position to which the starter
    had read its log.
    """
    arguments = ARGUMENTS.fullmatch(" ".join(argv))
    if arguments is None:
        sys.stderr.write("a host requires the id of one session.\n")
        return UsageError.exit_code
    session, paths = SessionId(arguments["session"]), begin_process()
    if not paths.folder(session).is_dir():
        sys.stderr.write(f"{SessionNotFoundError(session)}\n")
        return SessionNotFoundError.exit_code
    paths.make()
    add_secrets(secrets_of(paths, session))
    lock = HostLock(paths.host_lock(session))
    if not lock.acquire():
        return 0
    try:
        if arguments["since"] and _has_grown(paths, session, Cursor(int(arguments["since"]))):
            return 0
        launch, backend = load_session(paths, session)
        return asyncio.run(_run_host(StructuredHost(paths, launch, backend, load_or_default(paths, log.warning))))
    finally:
        lock.let_go()


def _has_grown(paths: Paths, session: SessionId, since: Cursor) -> bool:
    """Whether another host had this session since its log was read that far."""
    with contextlib.suppress(LogMissingError):
        return any(True for _ in EventLog(paths.log(session)).read(since))
    return False


def load_session(paths: Paths, session: SessionId) -> tuple[Launch, Backend]:
    """Return the launch and its backend; an error in either is raised when the agent is opened."""
    launch = Launch(session=session, name="", agent="", mode=Mode.SDK, backend="")
    try:
        launch = load_launch(paths, session)
        if launch.mode is Mode.TMUX:
            raise UsageError(f"session {session!r} is a terminal session; the shared tmux host runs it.")
        return launch, load(launch.backend)
    except KasmonError as error:
        return launch, UnavailableBackend(error)
    except Exception as error:  # an import error of the backend ends the session, with the reason
        log.exception("the backend %r cannot be imported", launch.backend)
        return launch, UnavailableBackend(LaunchError(f"the backend {launch.backend!r} cannot be imported: {error!r}."))


async def _run_host(host: StructuredHost) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, host.end, f"its host got {number.name}")
    opened = await host.run()
    if host.leaves_sandbox:
        os._exit(0)  # a proper end would end what the next host is to find; all events are on disk
    return 0 if opened else LaunchError.exit_code


async def wait_for_removal(folder: Path) -> None:
    """Return once *folder* was removed. One that cannot be checked counts as existing."""
    missing = 0
    while missing < 2:
        await asyncio.sleep(REMOVAL_CHECK_S)
        missing = missing + 1 if await asyncio.to_thread(_is_missing, folder) else 0


def _is_missing(folder: Path) -> bool:
    try:
        folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False
