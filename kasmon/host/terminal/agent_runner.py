"""Runs the agent of one terminal session: receives its events, logs them, and types to it.

Of a request on the agent's screen only what the menu offers is accepted. Its answer is logged when the request has left
the screen, and not before: the log has what was done. If the host dies after the key and before that, the log has the
request as withdrawn, without an answer.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from kasmon.backends.base import Chunk
from kasmon.backends.common.environment import secret_values
from kasmon.backends.tmux.agent import TmuxAgent
from kasmon.backends.tmux.terminal_backend import TmuxBackend
from kasmon.errors import KasmonError, NotHibernatedError, PromptChangedError, RefusedError, SessionEndedError
from kasmon.host.journal.async_writer import LAST_WORDS_S, WRITTEN_S, LogWriter
from kasmon.host.journal.secrets import secrets_in
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.host_lock import HostLock
from kasmon.host.session.agent_services import AgentServices, add_process, first_prompt
from kasmon.host.session.request_registry import RequestRegistry
from kasmon.host.session.rules import SessionRules
from kasmon.host.terminal.typed_prompts import TypedPrompts
from kasmon.model.commands import AgentCommand, Answer, Hibernate, Launch, Requeue, Stop
from kasmon.model.events import (
    ConnectionLost,
    ConnectionRestored,
    Event,
    HibernationBegun,
    NoticeRaised,
    SessionEnded,
    SessionStarted,
    SignalSeen,
)
from kasmon.model.hibernation import find_obstacle
from kasmon.model.permission import Decision, Request, RequestId, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths
from kasmon.process_identity import is_running
from kasmon.sanitize import clean_line
from kasmon.store.session_reader import load_launch
from kasmon.tmux.formats import PaneFacts


class ScreenRequestRules(SessionRules):
    """Standing rules neither answer nor extend a request on a screen: they match tools, not menus."""

    def offered(self, request: Request) -> Request:
        return request


HOST_RESTARTED: Final = "its host was restarted"


class TerminalAgentRunner:
    """An agent with its host's lock on the session, its log writer and its prompts, until it ends or is released."""

    def __init__(
        self,
        launch: Launch,
        lock: HostLock,
        log_writer: LogWriter,
        agent: TmuxAgent,
        on_cut: Callable[[Launch], None] = lambda _: None,
    ) -> None:
        """*lock* is taken; *on_cut* is called when it is over and its agent may still run on another machine."""
        self.agent = agent
        self.prompts = TypedPrompts(log_writer, agent)
        self.services = AgentServices(
            log_writer,
            launch,
            RequestRegistry(log_writer, ScreenRequestRules(log_writer.session_log.paths, launch), replacements={}),
            end_agent=lambda why: agent.end(why, Stop().grace_s),
            on_agent=agent.set_agent_process,
            is_attached=agent.is_attached,
        )
        self._on_cut = on_cut
        self._is_cut = False
        self._launch = launch
        self._lock = lock
        self._log_writer = log_writer
        self._begun = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None
        self._last_words_s: float | None = None
        self._output_monitor = asyncio.create_task(self._read_events())

    @classmethod
    async def start(
        cls,
        paths: Paths,
        backend: TmuxBackend,
        session: SessionId,
        variables: Mapping[str, str],
        *,
        again: bool = True,
        on_cut: Callable[[Launch], None] = lambda _: None,
    ) -> "TerminalAgentRunner":
        """Start the agent by the session's `launch.json`; its start is in the log when this returns.

        A lost one on another machine that still runs is reconnected instead.

        Args:
            variables: the requesting process's, see `TmuxBackend.open`.
            again: whether a lost one that no longer runs is started again.
            on_cut: see `TerminalAgentRunner`.

        Raises:
            RefusedError: if another host has the session, or its agent runs.
            LaunchError, TmuxError: if it cannot be started; the log has the reason too.
            RemoteUnreachableError: if its machine cannot be reached.
        """
        launch = await asyncio.to_thread(load_launch, paths, session)
        lock, log_writer = await _lock_log(paths, session, secret_values(variables))
        generation = max(launch.generation, log_writer.session.generation + 1)
        may_live_on = bool(launch.machine) and log_writer.session.state is SessionState.LOST
        try:
            lives_on = may_live_on and (not again or await backend.is_alive(launch))
            launch = msgspec.structs.replace(
                launch, generation=log_writer.session.generation if lives_on else generation
            )
            agent = await backend.open(launch, variables, lives_on=lives_on)
            if launch.sandbox is not None:
                from kasmon.sandbox.agent.launch import secrets_of  # only needed with a sandbox

                log_writer.session_log.add_secrets(secrets_of(session))
        except BaseException as error:
            if isinstance(error, KasmonError) and not isinstance(error, RefusedError) and not may_live_on:
                log_writer.note(SessionEnded(at=time.time(), why=str(error), never_began=True))
                await _clear_sandbox(paths, session)
            await _close_log(lock, log_writer, WRITTEN_S)
            raise
        runner = cls(launch, lock, log_writer, agent, on_cut)
        if (prompt := first_prompt(log_writer.session, launch, "now")) is not None:
            runner.prompts.queue_first(prompt)
        await runner._begun.wait()
        await log_writer.wait_for_write(WRITTEN_S)
        return runner

    @classmethod
    async def recover(
        cls,
        paths: Paths,
        backend: TmuxBackend,
        launch: Launch,
        facts: PaneFacts,
        on_cut: Callable[[Launch], None] = lambda _: None,
    ) -> "TerminalAgentRunner":
        """Recover the agent in the pane of *facts*, which an earlier host started and left.

        Raises:
            RefusedError: if another host has the session.
        """
        lock, log_writer = await _lock_log(paths, launch.session, await asyncio.to_thread(secrets_in, facts.pid))
        now = log_writer.session
        launch = msgspec.structs.replace(launch, generation=max(now.generation, 1))
        agent = await backend.recover(launch, facts, now.signals)
        runner = cls(launch, lock, log_writer, agent, on_cut)
        # The first reading opens again what is still on the screen.
        runner.services.requests.withdraw_all(HOST_RESTARTED, time.time())
        if now.state is SessionState.LOST:
            log_writer.note(ConnectionRestored(at=time.time()))
        is_same = facts.pid == _pane_pid(now) and (
            facts.is_dead or await asyncio.to_thread(is_running, now.pid, now.pid_started, now.pid_boot)
        )
        if is_same and facts.pid != now.pid and now.pid is not None:
            agent.set_agent_process(now.pid)
        if not is_same:
            agent.say(agent.record_start(now.generation + 1))
            await runner._begun.wait()
            await log_writer.wait_for_write(WRITTEN_S)
        if not facts.is_dead:
            runner.services.begin(facts.pid, is_new=not is_same)
        if facts.is_dead:
            agent.handle_pane_facts(facts)
        elif is_same and now.freed_bytes is not None:
            agent.end("stopped", Stop().grace_s)  # the earlier host ended while it hibernated it
        elif is_same and any(signal.source == "launch" for signal in now.signals):
            if launch.sandbox is None or facts.pid != now.pid:
                await runner._resume_prompts()
            else:  # the earlier host ended before it had found the agent's process
                runner._settling = asyncio.create_task(runner._resume_when_inspected())
        elif facts.ready or launch.machine:  # a remote one is connected by now, or is lost soon
            agent.begin_monitoring()
        return runner

    @contextlib.asynccontextmanager
    async def executing(self, command: AgentCommand | Requeue) -> AsyncIterator[None]:
        """Resume the agent's sandbox, if *command* needs it, which is executed then; its events are written afterwards.

        Raises:
            SessionEndedError: if the agent is being hibernated.
            KasmonError: if its sandbox cannot be resumed.
        """
        if self._log_writer.session.freed_bytes is not None:
            raise SessionEndedError(self._launch.session)
        if self.services.sandboxed_agent is not None:
            await self.services.sandboxed_agent.lifecycle.ensure_running(command)
        try:
            yield
        finally:
            await self._log_writer.wait_for_write(WRITTEN_S)

    async def answer(self, answer: Answer, peer_pid: int, *, is_agents: bool) -> None:
        """Deliver *answer* of process *peer_pid* to the screen, then accept it.

        *is_agents*: the sender declares that it belongs to an agent.

        Raises:
            RefusedError: if an agent sent it, its request does not take it, or the prompt changed; nothing was sent.
            KasmonError: if it is unknown whether the agent has it.
        """
        async with self.services.accepting(answer, peer_pid, is_agents=is_agents) as who:
            if await self.services.answer_own(answer, who):
                return
            requests = self.services.requests
            request, asked = requests.require_answerable(answer)
            if answer.decision is not Decision.LATER:
                await self._send_answer(requests.for_agent(answer, asked), request.id)
            if self._log_writer.session.open_request(request.id) is not None:
                requests.accept(answer, who=who)

    async def _send_answer(self, answer: Answer, request: RequestId) -> None:
        """Send *answer*, in the agent's form, to the log's *request*."""
        try:
            await self.agent.send(answer)
        except PromptChangedError as error:
            raise PromptChangedError(request) from error
        except RefusedError:
            raise
        except KasmonError as error:
            why = error.message.replace(str(answer.request), str(request))
            text = f"It is unknown whether the agent received the answer: {why}"
            self._log_writer.note(NoticeRaised(at=time.time(), level="error", text=text))
            raise

    async def hibernate(self, command: Hibernate) -> None:
        """End the agent; the log has first that it is hibernated by that. From then on it accepts nothing.

        Raises:
            NotHibernatedError: if something waits for it, or a person typed to it or is attached.
            SessionEndedError, TmuxError: if its screen cannot be read.
        """
        name, seen_at = self._launch.name or self._launch.session, asyncio.get_running_loop().time()
        reading = None if self.agent.box_rule is None else (await self.agent.see_now()).reading
        box = None if reading is None else reading.composer
        is_attached = await self.agent.is_attached()
        why = find_obstacle(self._log_writer.session)
        if not why and not self.prompts.is_at_rest:
            why = "it is being prompted"
        elif not why and is_attached:
            why = "a terminal is attached to it"
        elif not why and box is None:
            why = "its input box is not visible, so it may hold a draft"
        elif not why and reading is not None and reading.notice:
            why = f"its screen shows {clean_line(reading.notice)!r}"
        elif not why and box is not None and (box.draft or self.agent.keyed_at >= seen_at):
            why = "its input box holds a draft"
        if why:
            raise NotHibernatedError(name, why)
        self._log_writer.note(HibernationBegun(at=time.time(), freed_bytes=command.freed_bytes), durable=True)
        await self._log_writer.wait_for_disk()
        self.agent.end("stopped", Stop().grace_s)

    async def wait_for_end(self) -> None:
        """Return when all events are written and the session's lock is free."""
        await asyncio.wait([self._output_monitor])

    async def let_go(self) -> None:
        """Leave the agent running, and the session to the next host. Idempotent, 30 s at most."""
        self._last_words_s = LAST_WORDS_S
        self.agent.let_go()
        await asyncio.wait([self._output_monitor])

    async def _begin_prompts(self) -> None:
        await self.services.wait_until_inspected()  # by its process the end of a shell's command is seen
        await self.prompts.begin_when_ready()

    async def _resume_when_inspected(self) -> None:
        await self.services.wait_until_inspected()
        await self._resume_prompts()

    async def _resume_prompts(self) -> None:
        self.prompts.resume()
        await self.prompts.begin(self.agent.reports_state)

    async def _read_events(self) -> None:
        try:
            async for event in self.agent.events():
                if not isinstance(event, Chunk):
                    await self._log_writer.wait_for_space()
                    await self._handle(event)
        finally:
            self._begun.set()
            if self._settling is not None:
                self._settling.cancel()
            await self.services.aclose(is_over=self.agent.has_ended)
            await self.prompts.aclose()
            await _close_log(self._lock, self._log_writer, self._last_words_s)
        if self._is_cut:
            self._on_cut(self._launch)

    async def _handle(self, event: Event) -> None:
        if isinstance(event, SessionStarted | ConnectionRestored):
            event = await add_process(event)
            if isinstance(event, SessionStarted):
                event = msgspec.structs.replace(event, host_pid=os.getpid(), account=self._launch.account)
        translated = self.services.requests.translate(event)
        if translated is None:
            return
        self._log_writer.note(translated)
        self.services.requests.forget_closed()
        match event:
            case SessionStarted() | ConnectionRestored():
                self._begun.set()
            case SignalSeen(source="launch"):
                self.services.begin(self.agent.pid)
                self._settling = asyncio.create_task(self._begin_prompts())
            case SignalSeen():
                await self.prompts.handle_signal(event)
            case SessionEnded() | ConnectionLost():
                self._is_cut = isinstance(event, ConnectionLost) and bool(self._launch.machine)
                self.prompts.end()
                self.prompts.handle_event(event)
            case _:
                pass


def _pane_pid(session: Session) -> int | None:
    """Return the pid of its pane's process: the agent's, or that of the sandbox's front process."""
    runtime = session.sandbox_state.runtime if session.sandbox_state is not None else None
    return runtime.front if runtime is not None and runtime.front else session.pid


async def write_off(paths: Paths, session: SessionId, event: Event, *, may_run: bool = False) -> None:
    """Note *event*, the end of a session without a running agent; if it *may_run*, its sandbox is left alone."""
    with contextlib.suppress(RefusedError):
        lock, log_writer = await _lock_log(paths, session)
        log_writer.note(event)
        if not may_run:
            await _clear_sandbox(paths, session, spares_memory=isinstance(event, ConnectionLost))
        await _close_log(lock, log_writer, WRITTEN_S)


async def _clear_sandbox(paths: Paths, session: SessionId, *, spares_memory: bool = False) -> None:
    """Remove the sandbox of an agent that did not begin, or is gone; no effect without one.

    *spares_memory*: keep a snapshot on disk.
    """
    if not await asyncio.to_thread(paths.sandbox(session).exists):
        return
    from kasmon.sandbox.agent.launch import clean_up  # only where there is a sandbox

    with contextlib.suppress(KasmonError, OSError):  # its next start tries that again
        await asyncio.to_thread(clean_up, paths, session, spares_memory=spares_memory)


async def _lock_log(paths: Paths, session: SessionId, secrets: Sequence[str] = ()) -> tuple[HostLock, LogWriter]:
    """Return the session's lock, taken, and its log writer, which redacts *secrets*. Raises `RefusedError`."""
    lock = HostLock(paths.host_lock(session))
    if not await asyncio.to_thread(lock.acquire):
        raise RefusedError(f"session {session!r} already has a host.")
    try:
        return lock, LogWriter(await asyncio.to_thread(SessionLog, paths, session, secrets))
    except BaseException:
        lock.let_go()
        raise


async def _close_log(lock: HostLock, log_writer: LogWriter, limit_s: float | None) -> None:
    try:
        await log_writer.aclose(limit_s)
    finally:
        lock.let_go()
