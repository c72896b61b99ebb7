"""One running agent: its process, its messages as events, and commands as protocol calls."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from acp import RequestError

from kasmon.backends.acp import errors, turns
from kasmon.backends.acp.configuration import ConfigurationChange
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.incoming_handler import IncomingHandler
from kasmon.backends.acp.known_agents import KnownAgent
from kasmon.backends.acp.open_requests import OpenRequests
from kasmon.backends.acp.session_start import OpenConversation, SessionStart
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.backends.acp.transport import AcpTransport
from kasmon.backends.base import Chunk
from kasmon.backends.common import handshake_timeout
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.backends.common.event_queue import EventQueue
from kasmon.errors import SessionBusyError, SessionEndedError, UnfitAgentError
from kasmon.model.commands import Answer, Configure, Interrupt, Launch, Prompt, Stop, Wish
from kasmon.model.events import Event, NoticeRaised, SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.model.permission import Decision

HANDSHAKE_S: Final = 45.0
"""How long an agent may take to open a conversation, in seconds: opencode's first start took more than 10."""
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


class AcpAgent:
    """One agent; call `introduce` before anything else."""

    def __init__(self, launch: Launch, known: KnownAgent, child: ChildProcess, around: AgentEnvironment) -> None:
        self._launch = launch
        self._known = known
        self._child = child
        self._around = around
        self._session = ""
        self._translation = AcpTranslator(launch.workdir, launch.remembers, launch.used)
        self._outbox = EventQueue()
        self._say = self._outbox.say
        self._questions = OpenRequests(launch, self._translation, self._say)
        self._heard = IncomingHandler(self._translation, self._questions, self._say)
        self._turn: asyncio.Task[None] | None = None
        self._cancelled_at = -math.inf
        """When the turn was cancelled, by the loop's clock."""
        self._stopping: asyncio.Task[None] | None = None
        self._living: asyncio.Task[None] | None = None
        self._why = ""
        """Why it was ended; empty if it ended by itself."""
        self._pipe = AcpTransport(child, self._heard.skipped, self._outbox.room)
        self._peer = AcpClient(self._pipe, self._heard.called)

    async def introduce(self) -> None:
        """Open the conversation; after that, `events` yields.

        Raises:
            LaunchError: if that fails; the process is ended then.
        """
        try:
            conversation = await self._opened()
        except BaseException:
            await self._child.end()
            await self._peer.aclose()
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
        self._outbox.introduce([started])
        self._say([*self._translation.now_set(conversation.settings, at), *doubts])
        self._heard.is_open = True
        self._living = asyncio.create_task(self._live())

    def events(self) -> AsyncIterator[Event | Chunk]:
        """Yield what happens, in order. Ends after the single `SessionEnded`."""
        return self._outbox.taken()

    async def send(self, wish: Wish, /) -> None:
        """Send the command *wish* to the agent.

        Raises:
            SessionEndedError: if it has ended.
            SessionBusyError: if a prompt arrives during a turn: ACP has one prompt at a time.
            RequestClosedError, StaleRequestError, UnableError, UsageError: if no open request accepts this answer.
            UnableError, RefusedError: if it does not accept a setting.
        """
        if not self._child.is_running:
            raise SessionEndedError(self._launch.session)
        match wish:
            case Prompt():
                self._prompt(wish)
            case Answer():
                await self._answer(wish)
            case Interrupt():
                await self._interrupt()
            case Stop():
                self._stop(wish)
            case Configure():
                await self._configure(wish)

    async def aclose(self) -> None:
        """End the agent if it runs; idempotent."""
        self._why = self._why or "closed"
        await self._child.end()
        if self._living is not None:
            await asyncio.wait([self._living])

    # Start and end

    async def _opened(self) -> OpenConversation:
        await handshake_timeout.arrived(self._launch, self._child.pid)
        limit_s = handshake_timeout.limit_s(self._launch, HANDSHAKE_S)
        opening = SessionStart(self._peer, self._launch, self._known, self._around, self._translation)
        try:
            async with asyncio.timeout(limit_s):
                return await opening.open()
        except TimeoutError as error:
            what = f"{self._launch.argv[0]!r} did not respond to {self._peer.waits_for!r} within {limit_s:g} s."
            raise UnfitAgentError(what, hint=self._evidence()) from error
        except GONE as error:
            await self._child.end(LAST_S)
            how = self._child.signal or f"exit code {self._child.exit_code}"
            what = f"{self._launch.argv[0]!r} ended before it responded to {self._peer.waits_for!r} ({how})."
            raise UnfitAgentError(what, hint=self._evidence()) from error

    def _evidence(self) -> str:
        """Return what the agent printed outside its protocol."""
        printed = errors.cleaned(self._heard.garbage.decode("utf-8", "replace"), self._around.secrets)
        said = (("Its message:", self._child.last_words), ("It printed:", printed))
        return " ".join(f"{how} {words}" for how, words in said if words)

    async def _live(self) -> None:
        """Wait for its end, and report how it ended."""
        exited, over = asyncio.create_task(self._child.wait()), asyncio.create_task(self._pipe.over.wait())
        await asyncio.wait([exited, over], return_when=asyncio.FIRST_COMPLETED)
        _, missing = await asyncio.wait([exited, over], timeout=LAST_S)
        if exited in missing:
            self._why = self._why or "it closed its output, and was ended"
        try:
            await self._child.end()
            over.cancel()
            await self._peer.aclose()
            if self._turn is not None:
                await asyncio.wait([self._turn])
            self._questions.withdraw("the agent ended", time.time())
            self._say(self._translation.ends(time.time()))
            self._translation.foreign.told()
        finally:
            self._say([self._ended()])

    def _ended(self) -> SessionEnded:
        return SessionEnded(
            at=time.time(),
            exit_code=self._child.exit_code,
            signal=self._child.signal,
            why=self._why,
            last_words=self._child.last_words,
        )

    def _stop(self, wish: Stop) -> None:
        self._why = self._why or "stopped"
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._finish(wish.grace_s))

    async def _finish(self, grace_s: float) -> None:
        """End the turn, then the process, which ends by itself when its input is closed."""
        with contextlib.suppress(TimeoutError, SessionEndedError):
            async with asyncio.timeout(min(grace_s, PARTING_S)):
                await self._interrupt()
                if self._turn is not None:
                    await asyncio.wait([self._turn])
        await self._child.end(grace_s)

    # Commands

    def _prompt(self, wish: Prompt) -> None:
        if self._turn is not None:
            raise SessionBusyError(self._launch.session, "asking" if self._questions else "working")
        at = time.time()
        self._say([*self._translation.begins(at), TurnStarted(at=at, prompt=wish.text, by=wish.by)])
        self._heard.in_turn = True
        self._turn = asyncio.create_task(self._take_turn(wish.text))

    async def _take_turn(self, text: str) -> None:
        answer: dict[str, Any] | None = None
        ended: list[Event] = []
        try:
            answer = await self._peer.prompt(self._session, text)
        except RequestError as error:
            ended = turns.failed(error, self._around.secrets, self._known.log_in, time.time())
        except GONE:
            return  # the end of the process is reported separately
        finally:
            was_cancelled = self._questions.is_closed
            self._turn, self._heard.in_turn, self._questions.is_closed = None, False, False
        at = time.time()
        self._questions.withdraw("the turn ended", at)
        went_on = self._heard.worked_at > self._cancelled_at + CANCEL_S
        if was_cancelled and not went_on:  # some agents report an interrupt as an error, or as done
            ended = [TurnEnded(at=at, reason="interrupted")]
        elif answer is not None:
            ended = self._outcome(answer, at)
        self._say([*self._translation.ends(at, answer), *ended])

    def _outcome(self, answer: dict[str, Any], at: float) -> list[Event]:
        """Return the events for a turn that the agent ended itself with *answer*."""
        if (end := turns.ended(answer, at)) is not None:
            return [end]
        return [*self._translation.foreign.seen("stopReason", answer, at), TurnEnded(at=at)]

    async def _answer(self, answer: Answer) -> None:
        if self._questions.forms.has(answer.request):
            settled = self._questions.forms.take(answer, time.time())
            if settled.ends_turn:
                await self._cancel()
            self._questions.forms.tell(settled)
            if settled.ends_turn:
                self._questions.withdraw(INTERRUPTED, time.time())
            return
        waiting = self._questions.take(answer)
        if answer.decision is Decision.CANCEL:
            await self._cancel()
        await self._questions.tell(waiting, answer)
        if answer.decision is Decision.CANCEL:
            self._questions.withdraw(INTERRUPTED, time.time())

    async def _interrupt(self) -> None:
        """Cancel the turn, and withdraw its requests at once: gemini waits for their answers before it ends."""
        await self._cancel()
        self._questions.withdraw(INTERRUPTED, time.time())

    async def _cancel(self) -> None:
        """Ask the agent to end the turn, before requests are denied: otherwise it might begin its next step.

        From then on the turn's end counts as an interrupt, whatever the agent reports, unless the agent works on.
        """
        if (running := self._turn) is None:
            return
        await asyncio.wait([running], timeout=OWN_END_S)
        if self._turn is not running:
            return
        self._questions.is_closed = True
        self._cancelled_at = asyncio.get_running_loop().time()
        try:
            await self._peer.cancel(self._session)
        except ConnectionError as error:
            raise SessionEndedError(self._launch.session) from error

    async def _configure(self, wish: Configure) -> None:
        configuring = ConfigurationChange(self._peer, self._translation, self._around.secrets)
        for setting, value in configuring.wanted(wish):
            self._say(await configuring.set(setting, value))
