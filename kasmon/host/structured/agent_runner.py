"""Runs one agent with a protocol: opens it, notes its events, sends it commands, ends it and logs why it ended."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from kasmon.asyncio_tasks import TaskSet, cancel_and_wait
from kasmon.backends.base import Agent, Backend, Chunk, SandboxedAgentControl, SecretsLearned
from kasmon.errors import (
    KasmonError,
    LogInRequiredError,
    RefusedError,
    RequestClosedError,
    SessionEndedError,
    StaleRequestError,
    TimedOutError,
    UnableError,
)
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.agent_services import AgentServices, add_process
from kasmon.host.session.prompt_images import load_images
from kasmon.host.session.prompts import Prompts
from kasmon.host.session.request_registry import AcceptedAnswer, RequestRegistry
from kasmon.host.session.rules import STANDING, SessionRules
from kasmon.host.structured.live_text import LiveText
from kasmon.model.commands import (
    AgentCommand,
    Allow,
    Answer,
    ConversationUsage,
    Launch,
    Mode,
    Prompt,
    Stop,
    TerminalLogIn,
)
from kasmon.model.events import Event, LogInRequired, NoticeRaised, RequestOpened, SessionEnded, SessionStarted
from kasmon.model.permission import Decision, Request, RequestId
from kasmon.model.rule import Rule, RuleEffect
from kasmon.model.sandbox.state import must_be_on_disk

NET_S: Final = 2.0
"""How much longer than the handshake limit to wait for the agent's start: its backend knows better why it failed."""
LODGED_S: Final = 190.0
"""Likewise, if a sandbox other than a jail has to start first."""
CLOSING_S: Final = 12.0
"""How long ending an agent may take: its backend's promise, and a margin."""
WRITTEN_S: Final = 2.0
GONE: Final = "the agent ended"
NOT_KNOWN = "It is unknown whether it still will."

log = logging.getLogger(__name__)


class StructuredAgentRunner:
    """The agent of one session, in one generation. Its events are noted; if it fails it ends, with the reason."""

    def __init__(self, log_writer: LogWriter, launch: Launch, backend: Backend, call_s: float) -> None:
        """*call_s*: how long the agent may take to accept a command, in seconds."""
        self.has_ended = False
        self.opened = False
        self.policy = SessionRules(log_writer.session_log.paths, launch)
        self.requests = RequestRegistry(log_writer, self.policy)
        self.live = LiveText(launch.session, log_writer.session_log.redactor, log_writer.note)
        self.prompts = Prompts(log_writer, self.send, steers=backend.abilities.steers)
        self.services = AgentServices(
            log_writer,
            launch,
            self.requests,
            end_agent=lambda why: self.end(why, Stop().grace_s),
            allow_for_good=self._allow_for_good if launch.mode is Mode.INTERPRETER else None,
        )
        self._log_writer = log_writer
        self._launch = launch
        self._backend = backend
        self._call_s = call_s
        self._agent: Agent | None = None
        self._opening: asyncio.Task[Agent] | None = None
        self._output_monitor: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._answering = TaskSet()
        """Answers by rule that are being sent to the agent."""
        self._in_a_hurry = asyncio.Event()
        self._settled = asyncio.Event()
        """Set once the agent is open, or opening has failed."""
        self._end_why = ""
        """Why it was requested to end; empty if it was not."""

    async def run_agent(self) -> None:
        """Open the agent and return when it has ended, and that is noted."""
        try:
            agent = await self._open()
            if agent is None:
                await self.services.aclose(is_over=True)
                return
            self._agent, self.opened = agent, True
            if self.services.sandboxed_agent is not None:
                self._log_writer.session_log.add_secrets(self.services.sandboxed_agent.secrets)
        finally:
            self._settled.set()
        self._output_monitor = asyncio.create_task(self._read_events(agent))
        await asyncio.wait([self._output_monitor])
        if self.services.egress is not None:
            await self.services.egress.aclose()
        if not self.has_ended:
            await self.handle_event(SessionEnded(at=time.time(), why="its host stopped waiting for its end"))
        if self._ending is not None:
            await self._ending
        await self._close(agent)
        await self.services.aclose(is_over=True)

    async def handle_event(self, event: Event) -> None:
        """Note *event*, with the host's own data added, and act on it."""
        if self.has_ended:
            return
        if isinstance(event, SessionStarted):
            event = await self._complete_start(event)
        elif isinstance(event, SessionEnded) and self._end_why:
            event = msgspec.structs.replace(event, why=self._end_why)
        elif isinstance(event, RequestOpened):
            await self._refresh_rules()
        try:
            translated = self.requests.translate(event)
            if translated is None:
                return
            if isinstance(translated, SessionEnded):
                self.requests.withdraw_all(GONE, translated.at)
            self.live.flush_before(translated)
            self._log_writer.note(translated, durable=must_be_on_disk(translated))
        except (ValueError, TypeError, RecursionError) as error:
            self.notice(f"An event of the agent could not be logged ({type(event).__name__}): {error}", error)
            return
        if isinstance(translated, SessionStarted | SessionEnded):
            self.prompts.is_ready = isinstance(translated, SessionStarted)
            self.has_ended = isinstance(translated, SessionEnded)
        self.requests.forget_closed()
        if isinstance(translated, SessionStarted):
            self.services.begin(translated.pid)
        self.live.handle_event(translated)
        self.prompts.handle_event(translated)
        if isinstance(translated, RequestOpened) and (rule := self.policy.decides(translated.request)) is not None:
            self._answering.start(self._answer_by_rule(rule, translated.request))

    async def send(self, command: AgentCommand) -> None:
        """Send *command* to the agent.

        Raises:
            SessionEndedError: if it has ended.
            RefusedError: if it is still starting, or does not accept it.
            TimedOutError: if it did not react in time; the result is unknown then.
            KasmonError: if its backend failed.
        """
        agent = self._running()
        if isinstance(command, Prompt):
            command = msgspec.structs.replace(command, when="now")
            if command.images:
                paths = self._log_writer.session_log.paths
                command = await asyncio.to_thread(load_images, paths, self._launch.session, command)
        try:
            async with asyncio.timeout(self._call_s):
                await agent.send(command)
        except TimeoutError as error:
            raise TimedOutError(f"the agent did not accept it within {self._call_s:g} s.", hint=NOT_KNOWN) from error
        except KasmonError:
            raise
        except Exception as error:  # a backend's error must not take the host down; the notice records it
            self.notice(f"The agent's backend failed: {error!r}", error)
            raise KasmonError(f"the command could not be sent to the agent: {error!r}.", hint=NOT_KNOWN) from error

    async def wait_for_sandboxed(self) -> SandboxedAgentControl:
        """Return the agent, if it runs code in a sandbox of its own; waits until it is open.

        Raises:
            SessionEndedError: if it has ended.
            UnableError: if it is another kind of agent.
        """
        await self._settled.wait()
        agent = self._running()
        if not isinstance(agent, SandboxedAgentControl):
            raise UnableError(f"session {self._launch.session!r} is not an interpreter sandbox.")
        return agent

    def end(self, why: str, grace_s: float) -> None:
        """Ask the agent to finish, and end it after *grace_s* seconds. Asking again can only shorten that."""
        if self.has_ended:
            return
        self._end_why = self._end_why or why
        if self._agent is None:
            if self._opening is not None:
                self._opening.cancel()
            return
        asyncio.get_running_loop().call_later(grace_s, self._in_a_hurry.set)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(Stop(grace_s=grace_s)))

    def notice(self, text: str, error: BaseException | None = None) -> None:
        """Note the problem *text* for the user; *error* goes to the host's own log."""
        log.warning("%s", text, exc_info=error)
        self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="error"))

    async def _allow_for_good(self, entry: str) -> None:
        await (await self.wait_for_sandboxed()).change_sandbox(Allow(hosts=(entry,)))

    def _running(self) -> Agent:
        if self.has_ended:
            raise SessionEndedError(self._launch.session)
        if self._agent is None:
            raise RefusedError(f"session {self._launch.session!r} is still starting.", hint="Try again in a moment.")
        return self._agent

    async def _refresh_rules(self) -> None:
        before = self.policy.trouble
        await asyncio.to_thread(self.policy.refresh)
        if self.policy.trouble and self.policy.trouble != before:
            self.notice(f"No standing rule applies: {self.policy.trouble}")

    async def answer(self, answer: Answer, peer_pid: int, *, is_agents: bool) -> None:
        """Accept *answer*, which process *peer_pid* sent, and send it to the agent. *is_agents*: an agent sent it.

        Raises:
            RefusedError: if an agent sent it, or its request does not take it; nothing was sent then.
            KasmonError: if a rule could not be stored, or the agent could not be reached.
        """
        async with self.services.accepting(answer, peer_pid, is_agents=is_agents) as who:
            if await self.services.answer_own(answer, who):
                return
            rule = None
            if answer.decision in STANDING:
                request = self.requests.require_answerable(answer).request
                rule = await asyncio.to_thread(self.policy.remember, request, answer)
            try:
                accepted = self.requests.accept(answer, who=who, rule="" if rule is None else rule.id)
            except KasmonError:
                if rule is not None and rule.request == answer.request:
                    with contextlib.suppress(KasmonError):
                        await asyncio.to_thread(self.policy.forget, rule)
                raise
        if accepted is not None:
            await self._send_answer(accepted, answer.request)

    async def _answer_by_rule(self, rule: Rule, request: Request) -> None:
        """Answer *request* by *rule*; if that fails it waits for the user."""
        decision = Decision.ALLOW if rule.effect is RuleEffect.ALLOW else Decision.DENY
        reason = "" if rule.effect is RuleEffect.ALLOW else f"A standing rule denies {rule.words}."
        answer = Answer(request=request.id, digest=request.digest, decision=decision, reason=reason)
        with contextlib.suppress(KasmonError):  # the user was faster, or a notice has the reason
            accepted = self.requests.accept(answer, by="policy", rule=rule.id)
            assert accepted is not None
            await self._log_writer.wait_for_disk()
            await self._send_answer(accepted, request.id, f" of rule {rule.id}")

    async def _send_answer(self, accepted: AcceptedAnswer, request: RequestId, of_rule: str = "") -> None:
        """Send the answer to *request* to the agent; if the agent refuses it, the request is open again.

        Raises:
            KasmonError: if it was not sent, or that is unknown; a notice has the reason.
        """
        try:
            await self.send(accepted.answer)
        except (RequestClosedError, StaleRequestError) as error:
            self.notice(f"The answer{of_rule} to {request} came too late: the agent no longer waits for it.")
            raise RequestClosedError(request, "the agent no longer waits for it") from error
        except RefusedError as error:
            self.notice(f"The agent did not accept the answer{of_rule} to {request}: {error.message}")
            if not self.has_ended:
                self.requests.reopen(accepted)
            raise
        except KasmonError as error:
            self.notice(f"It is unknown whether the agent received the answer{of_rule} to {request}: {error.message}")
            raise

    async def _open(self) -> Agent | None:
        """Return the agent; None if it could not be opened, or was ended before, which is then noted."""
        if self._end_why:
            await self.handle_event(SessionEnded(at=time.time(), why=self._end_why, never_began=True))
            return None
        self._opening = asyncio.ensure_future(self._backend.open(self._with_usage()))
        limit_s = self._launch.handshake_s
        net_s = NET_S if self._launch.sandbox in (None, "jail") else LODGED_S
        backoff = asyncio.timeout(None if limit_s is None else limit_s + net_s)
        why = ""
        try:
            async with backoff:
                return await self._opening
        except asyncio.CancelledError:
            if not self._end_why:
                raise
        except KasmonError as error:
            why = str(error)
            if isinstance(error, LogInRequiredError) and error.argv:
                log_in = TerminalLogIn(title=error.title, argv=error.argv, variables=error.variables)
                await self.handle_event(LogInRequired(at=time.time(), log_in=log_in))
        except Exception as error:  # noqa: BLE001 - a backend's error must not be silent; the notice records it
            late = backoff.expired() and f"it did not initialise within {limit_s:g} s"
            why = late or f"its backend failed: {error!r}"
            self.notice(f"The agent could not be started: {why}", error)
        await self.handle_event(SessionEnded(at=time.time(), why=why, never_began=True))
        return None

    def _with_usage(self) -> Launch:
        session, used = self._log_writer.session, ConversationUsage()
        if tokens := session.tokens:
            used = ConversationUsage(input=tokens.input, output=tokens.output, cost_usd=session.cost_usd)
        return msgspec.structs.replace(self._launch, used=used)

    async def _read_events(self, agent: Agent) -> None:
        why = "its backend ended without a message"
        events = agent.events()
        try:
            async for event in events:
                if isinstance(event, Chunk):
                    await self._log_writer.wait_for_space()
                    self.live.write(event)
                    continue
                if isinstance(event, SecretsLearned):
                    self._log_writer.session_log.add_secrets(event.secrets)
                    continue
                await self._log_writer.wait_for_space()
                await self.handle_event(event)
                if self.has_ended:
                    break
                while must_be_on_disk(event) and not await self._log_writer.wait_for_write(WRITTEN_S):
                    pass  # its agent does nothing before it is written, and gives up by itself
        except Exception as error:  # noqa: BLE001 - likewise
            why = f"its backend failed: {error!r}"
            self.notice(f"The agent's backend failed: {error!r}", error)
        await self.handle_event(SessionEnded(at=time.time(), why=why))
        if isinstance(events, AsyncGenerator):
            with contextlib.suppress(Exception):
                await events.aclose()

    async def _end(self, stop: Stop) -> None:
        """End the agent: asked, then closed, then no longer waited for."""
        assert self._agent is not None
        assert self._output_monitor is not None
        asking = asyncio.create_task(self.send(stop))  # if that fails, it is ended all the same
        hurrying = asyncio.create_task(self._in_a_hurry.wait())
        await asyncio.wait([self._output_monitor, hurrying], return_when=asyncio.FIRST_COMPLETED)
        if not self._output_monitor.done():
            await self._close(self._agent)
            await asyncio.wait([self._output_monitor], timeout=CLOSING_S)
        await cancel_and_wait(asking, hurrying, self._output_monitor)

    async def _close(self, agent: Agent) -> None:
        """End the agent's process and its resources; idempotent and bounded."""
        try:
            async with asyncio.timeout(CLOSING_S):
                await agent.aclose()
        except Exception:  # its end is noted either way
            log.warning("the agent did not close", exc_info=True)

    async def _complete_start(self, started: SessionStarted) -> SessionStarted:
        started = await add_process(started)
        of_backend = [name for name, has in msgspec.structs.asdict(self._backend.abilities).items() if has]
        return msgspec.structs.replace(
            started,
            generation=self._launch.generation,
            abilities=tuple(dict.fromkeys((*of_backend, *started.abilities))),
            backend=self._launch.backend or started.backend,
            mode=self._launch.mode,
            workdir=started.workdir or self._launch.workdir,
            host_pid=os.getpid(),
            account=self._launch.account,
        )
