"""One running agent: its process, its messages as events, and commands as protocol calls."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from acp import RequestError

from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.incoming_handler import IncomingHandler
from kasmon.backends.acp.known_agents import KnownAgent
from kasmon.backends.acp.open_requests import OpenRequests
from kasmon.backends.acp.session_start import OpenConversation, SessionStart, few
from kasmon.backends.acp.settings import Setting, SettingOption, of_answer, to_set
from kasmon.backends.acp.translator import AcpTranslator, build_failure, build_turn_end
from kasmon.backends.acp.transport import AcpTransport
from kasmon.backends.base import Chunk
from kasmon.backends.common import agent_start
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.backends.common.event_queue import EventQueue
from kasmon.errors import RefusedError, SessionBusyError, SessionEndedError, UnableError, UnfitAgentError
from kasmon.model.commands import AgentCommand, Answer, Configure, Interrupt, Launch, Prompt, Stop
from kasmon.model.events import Event, NoticeRaised, SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.model.permission import Decision

LAST_S: Final = 1.5
"""How long its process may outlast its output, and its output its process, in seconds."""
PARTING_S: Final = 2.0
"""How long to try to end a running turn before the process is ended, in seconds."""
OWN_END_S: Final = 0.01
"""How long to wait for the turn's own end before the turn is cancelled, in seconds."""
CANCEL_S: Final = 1.0
"""Seconds after a cancellation in which the agent may still work; one that works longer ignored it."""
INTERRUPTED: Final = "the turn was interrupted"
GONE: Final = (ConnectionError, SessionEndedError)


class ConfigurationChange:
    """One change of an agent's settings."""

    def __init__(self, client: AcpClient, translator: AcpTranslator, secrets: Sequence[str]) -> None:
        self._client = client
        self._translator = translator
        self._secrets = secrets

    def wanted(self, command: Configure) -> list[tuple[Setting, str]]:
        """Return the settings in *command*, all of which the agent offers.

        Raises:
            UnableError: if it does not offer one of them.
        """
        settings: list[tuple[Setting, str | None]] = [("model", command.model), ("mode", command.permission_mode)]
        wanted = [(setting, value) for setting, value in settings if value is not None]
        for setting, value in wanted:
            self._offer(setting, value)
        return wanted

    async def set(self, setting: Setting, value: str) -> list[Event]:
        """Set *setting* to *value*; return the resulting events.

        Raises:
            RefusedError: if the agent rejects it.
            SessionEndedError: if the agent has ended.
        """
        translator = self._translator
        method, params = to_set(setting, self._offer(setting, value), value, translator.session or "")
        try:
            answer = await self._client.call(method, params)
        except RequestError as error:
            said = errors.words(error, self._secrets)
            raise RefusedError(f"the agent did not accept the {setting} {value!r}: {said}") from error
        except ConnectionError as error:
            raise SessionEndedError(translator.session or "") from error
        now = of_answer(answer, translator.settings.chosen(setting, value))
        return translator.now_set(now, time.time())

    def _offer(self, setting: Setting, value: str) -> SettingOption:
        """Return the agent's offer for *setting*, which contains *value*."""
        offer, what = self._translator.settings.offer(setting), "model" if setting == "model" else "permission mode"
        if offer is None:
            raise UnableError(f"this agent does not support setting its {what}.")
        if value not in offer.values:
            raise UnableError(f"this agent has no {what} {value!r}.", hint=f"Available: {few(offer.values)}.")
        return offer


class AcpAgent:
    """One agent; call `introduce` before anything else."""

    def __init__(self, launch: Launch, known: KnownAgent, child: ChildProcess, environment: AgentEnvironment) -> None:
        self._launch = launch
        self._known = known
        self._child = child
        self._environment = environment
        self._session = ""
        self._translator = AcpTranslator(launch.workdir, launch.remembers, launch.used)
        self._event_queue = EventQueue()
        self._emit = self._event_queue.put
        self._requests = OpenRequests(launch, self._translator, self._emit)
        self._incoming = IncomingHandler(self._translator, self._requests, self._emit)
        self._turn: asyncio.Task[None] | None = None
        self._cancelled_at = -math.inf
        """When the turn was cancelled, by the loop's clock."""
        self._stop_task: asyncio.Task[None] | None = None
        self._lifetime_task: asyncio.Task[None] | None = None
        self._why = ""
        """Why it was ended; empty if it ended by itself."""
        self._transport = AcpTransport(child, self._incoming.record_garbage, self._event_queue.wait_for_space)
        self._client = AcpClient(self._transport, self._incoming.called)

    async def introduce(self) -> None:
        """Open the conversation; after that, `events` yields.

        Raises:
            LaunchError: if that fails; the process is ended then.
        """
        try:
            conversation = await self._open_conversation()
        except BaseException:
            await self._child.end()
            await self._client.aclose()
            raise
        at, model = time.time(), conversation.settings.model
        self._session = conversation.id
        started = SessionStarted(
            at=at,
            generation=self._launch.generation,
            backend=self._launch.backend,
            mode=self._launch.mode,
            workdir=self._launch.workdir,
            pid=self._child.pid,
            resume_id=conversation.id,
            model=model.current if model is not None else "",
            proof=conversation.proof,
        )
        doubts = [NoticeRaised(at=at, text=conversation.doubt, level="warning")] if conversation.doubt else []
        self._event_queue.start([started])
        self._emit([*self._translator.now_set(conversation.settings, at), *doubts])
        self._incoming.is_open = True
        self._lifetime_task = asyncio.create_task(self._watch_end())

    def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        return self._event_queue.read()

    async def send(self, command: AgentCommand, /) -> None:
        """Send the command *command* to the agent.

        Raises:
            SessionEndedError: if it has ended.
            SessionBusyError: if a prompt arrives during a turn: ACP has one prompt at a time.
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts this answer.
            UnableError, RefusedError: if it does not accept a setting.
        """
        if not self._child.is_running:
            raise SessionEndedError(self._launch.session)
        match command:
            case Prompt():
                self._prompt(command)
            case Answer():
                await self._answer(command)
            case Interrupt():
                await self._interrupt()
            case Stop():
                self._stop(command)
            case Configure():
                await self._configure(command)

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent."""
        self._why = self._why or "closed"
        await self._child.end()
        if self._lifetime_task is not None:
            await asyncio.wait([self._lifetime_task])

    # Start and end

    async def _open_conversation(self) -> OpenConversation:
        await agent_start.wait_for_start(self._launch, self._child.pid)
        limit_s = agent_start.limit_s(self._launch)
        opening = SessionStart(self._client, self._launch, self._known, self._environment, self._translator)
        try:
            async with asyncio.timeout(limit_s):
                return await opening.open()
        except TimeoutError as error:
            what = f"{self._launch.argv[0]!r} did not respond to {self._client.waits_for!r} within {limit_s:g} s."
            raise UnfitAgentError(what, hint=self._printed_output()) from error
        except GONE as error:
            await self._child.end(LAST_S)
            how = self._child.signal or f"exit code {self._child.exit_code}"
            what = f"{self._launch.argv[0]!r} ended before it responded to {self._client.waits_for!r} ({how})."
            raise UnfitAgentError(what, hint=self._printed_output()) from error

    def _printed_output(self) -> str:
        printed = errors.cleaned(self._incoming.garbage.decode("utf-8", "replace"), self._environment.secrets)
        said = (("Its message:", self._child.last_words), ("It printed:", printed))
        return " ".join(f"{how} {words}" for how, words in said if words)

    async def _watch_end(self) -> None:
        exited, over = asyncio.create_task(self._child.wait()), asyncio.create_task(self._transport.over.wait())
        await asyncio.wait([exited, over], return_when=asyncio.FIRST_COMPLETED)
        _, missing = await asyncio.wait([exited, over], timeout=LAST_S)
        if exited in missing:
            self._why = self._why or "it closed its output, and was ended"
        try:
            await self._child.end()
            over.cancel()
            await self._client.aclose()
            if self._turn is not None:
                await asyncio.wait([self._turn])
            self._requests.withdraw("the agent ended", time.time())
            self._emit(self._translator.ends(time.time()))
            self._translator.foreign.log_counts()
        finally:
            self._emit([self._ended()])

    def _ended(self) -> SessionEnded:
        return SessionEnded(
            at=time.time(),
            exit_code=self._child.exit_code,
            signal=self._child.signal,
            why=self._why,
            last_words=self._child.last_words,
        )

    def _stop(self, command: Stop) -> None:
        self._why = self._why or "stopped"
        if self._stop_task is None:
            self._stop_task = asyncio.create_task(self._end_gracefully(command.grace_s))

    async def _end_gracefully(self, grace_s: float) -> None:
        """End the turn, then the process, which ends by itself when its input is closed."""
        with contextlib.suppress(TimeoutError, SessionEndedError):
            async with asyncio.timeout(min(grace_s, PARTING_S)):
                await self._interrupt()
                if self._turn is not None:
                    await asyncio.wait([self._turn])
        await self._child.end(grace_s)

    # Commands

    def _prompt(self, command: Prompt) -> None:
        if self._turn is not None:
            raise SessionBusyError(self._launch.session, "asking" if self._requests else "working")
        at = time.time()
        self._emit([*self._translator.begins(at), TurnStarted(at=at, prompt=command.text, by=command.by)])
        self._incoming.in_turn = True
        self._turn = asyncio.create_task(self._take_turn(command.text))

    async def _take_turn(self, text: str) -> None:
        answer: dict[str, Any] | None = None
        ended: list[Event] = []
        try:
            answer = await self._client.prompt(self._session, text)
        except RequestError as error:
            ended = build_failure(error, self._environment.secrets, self._known.log_in, time.time())
        except GONE:
            return  # the end of the process is reported separately
        finally:
            was_cancelled = self._requests.is_closed
            self._turn, self._incoming.in_turn, self._requests.is_closed = None, False, False
        at = time.time()
        self._requests.withdraw("the turn ended", at)
        has_continued = self._incoming.worked_at > self._cancelled_at + CANCEL_S
        if was_cancelled and not has_continued:  # some agents report an interrupt as an error, or as done
            ended = [TurnEnded(at=at, reason="interrupted")]
        elif answer is not None:
            ended = self._outcome(answer, at)
        self._emit([*self._translator.ends(at, answer), *ended])

    def _outcome(self, answer: dict[str, Any], at: float) -> list[Event]:
        if (end := build_turn_end(answer, at)) is not None:
            return [end]
        return [*self._translator.foreign.seen("stopReason", answer, at), TurnEnded(at=at)]

    async def _answer(self, answer: Answer) -> None:
        if self._requests.forms.has(answer.request):
            settled = self._requests.forms.apply(answer, time.time())
            if settled.ends_turn:
                await self._cancel()
            self._requests.forms.send(settled)
            if settled.ends_turn:
                self._requests.withdraw(INTERRUPTED, time.time())
            return
        waiting = self._requests.apply(answer)
        if answer.decision is Decision.CANCEL:
            await self._cancel()
        await self._requests.send(waiting, answer)
        if answer.decision is Decision.CANCEL:
            self._requests.withdraw(INTERRUPTED, time.time())

    async def _interrupt(self) -> None:
        """Cancel the turn, and withdraw its requests at once: gemini waits for their answers before it ends."""
        await self._cancel()
        self._requests.withdraw(INTERRUPTED, time.time())

    async def _cancel(self) -> None:
        """Ask the agent to end the turn, before requests are denied: otherwise it might begin its next step.

        From then on the turn's end counts as an interrupt, whatever the agent reports, unless the agent works on.
        """
        if (running := self._turn) is None:
            return
        await asyncio.wait([running], timeout=OWN_END_S)
        if self._turn is not running:
            return
        self._requests.is_closed = True
        self._cancelled_at = asyncio.get_running_loop().time()
        try:
            await self._client.cancel(self._session)
        except ConnectionError as error:
            raise SessionEndedError(self._launch.session) from error

    async def _configure(self, command: Configure) -> None:
        configuring = ConfigurationChange(self._client, self._translator, self._environment.secrets)
        for setting, value in configuring.wanted(command):
            self._emit(await configuring.set(setting, value))
