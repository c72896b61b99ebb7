"""One running agent: its process, its messages as events, and commands as protocol calls."""

import asyncio
import contextlib
import math
import time
from typing import Any, Final

from acp import RequestError

from kasmon.agents.profile import AgentProfile
from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.incoming_handler import IncomingHandler
from kasmon.backends.acp.open_requests import OpenRequests
from kasmon.backends.acp.session_start import SessionStart, few
from kasmon.backends.acp.settings import Setting, SettingOption, of_answer, to_set, to_switch
from kasmon.backends.acp.translator import AcpTranslator, build_failure, build_turn_end
from kasmon.backends.acp.transport import AcpTransport
from kasmon.backends.common.child_process import ChildProcess
from kasmon.backends.common.environment import AgentEnvironment
from kasmon.backends.common.structured_agent import LINGER_S, StructuredAgent
from kasmon.errors import LaunchError, RefusedError, SessionBusyError, SessionEndedError, UnableError, UnfitAgentError
from kasmon.model.commands import Answer, Configure, Launch, Prompt, TerminalLogIn
from kasmon.model.events import AgentSwitch, Event, NoticeRaised, TurnEnded, TurnStarted
from kasmon.model.permission import Decision

OWN_END_S: Final = 0.01
"""How long to wait for the turn's own end before the turn is cancelled, in seconds."""
CANCEL_S: Final = 1.0
"""Seconds after a cancellation in which the agent may still work; one that works longer ignored it."""
INTERRUPTED: Final = "the turn was interrupted"
GONE: Final = (ConnectionError, SessionEndedError)


class AcpAgent(StructuredAgent):
    def __init__(self, launch: Launch, agent: AgentProfile, child: ChildProcess, environment: AgentEnvironment) -> None:
        super().__init__(launch, child)
        self._agent = agent
        self._environment = environment
        self._session = ""
        self._closes = self._takes_images = False
        self._log_in: TerminalLogIn | None = None
        self._translator = AcpTranslator(launch.workdir, launch.remembers, launch.used)
        self._requests = OpenRequests(launch, self._translator, self._emit)
        self._incoming = IncomingHandler(self._translator, self._requests, self._emit)
        self._turn: asyncio.Task[None] | None = None
        self._cancelled_at = -math.inf
        """When the turn was cancelled, by the loop's clock."""
        self._transport = AcpTransport(child, self._incoming.record_garbage, self._event_queue.wait_for_space)
        self._client = AcpClient(self._transport, self._incoming.handle)

    async def begin(self) -> None:
        start = SessionStart(self._client, self._launch, self._agent, self._environment, self._translator)
        conversation = await start.open()
        at, model = time.time(), conversation.settings.model
        self._session, self._closes = conversation.id, conversation.closes
        self._takes_images, self._log_in = conversation.takes_images, conversation.log_in
        name = model.current if model is not None else ""
        abilities = conversation.abilities
        self._start_events(at, self._child.pid, conversation.id, name, conversation.proof, abilities=abilities)
        caveats = [NoticeRaised(at=at, text=conversation.caveat, level="warning")] if conversation.caveat else []
        imported, self._translator.imported = self._translator.imported, None
        entries = imported.end(at) if imported is not None else []
        self._emit([*self._translator.now_set(conversation.settings, at), *entries, *caveats])
        self._incoming.is_open = True
        self._life = asyncio.create_task(self._watch_end())

    def explain(self, error: Exception, limit_s: float) -> LaunchError:
        program, method = self._launch.argv[0], self._client.waits_for
        printed = errors.cleaned(self._incoming.garbage.decode("utf-8", "replace"), self._environment.secrets)
        outputs = (("Its message:", self._child.last_words), ("It printed:", printed))
        hint = " ".join(f"{how} {text}" for how, text in outputs if text)
        if isinstance(error, TimeoutError):
            return UnfitAgentError(f"{program!r} did not respond to {method!r} within {limit_s:g} s.", hint=hint)
        if not isinstance(error, GONE):
            raise error
        how = self._child.signal or f"exit code {self._child.exit_code}"
        return UnfitAgentError(f"{program!r} ended before it responded to {method!r} ({how}).", hint=hint)

    async def _disconnect(self) -> None:
        if self._life is None:  # else that closes it, once the rest of the output was read
            await self._client.aclose()

    async def _watch_end(self) -> None:
        exited, over = asyncio.create_task(self._child.wait()), asyncio.create_task(self._transport.over.wait())
        try:
            await asyncio.wait([exited, over], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([over], timeout=LINGER_S)
            await self._await_end()
            await self._client.aclose()
            if self._turn is not None:
                await asyncio.wait([self._turn])
            self._requests.withdraw("the agent ended", time.time())
            self._translator.unknown.log_counts()
        finally:
            exited.cancel()
            over.cancel()
            self._report_end(self._translator.ends(time.time()))

    async def _end_turn(self) -> None:
        await self._interrupt()
        if self._turn is not None:
            await asyncio.wait([self._turn])
        if self._closes:
            with contextlib.suppress(RequestError, *GONE):
                await self._client.call("session/close", {"sessionId": self._session})

    # Commands

    async def _prompt(self, prompt: Prompt) -> None:
        if self._turn is not None:
            raise SessionBusyError(self._launch.session, "asking" if self._requests else "working")
        if prompt.images and not self._takes_images:
            raise UnableError("this agent accepts no pictures.", hint="Write the path of the picture into the prompt.")
        at = time.time()
        self._emit([*self._translator.begins(at), TurnStarted(at=at, prompt=prompt.text, by=prompt.by)])
        self._incoming.in_turn = True
        self._turn = asyncio.create_task(self._run_turn(prompt))

    async def _run_turn(self, prompt: Prompt) -> None:
        answer: dict[str, Any] | None = None
        ended: list[Event] = []
        try:
            answer = await self._client.prompt(self._session, prompt.text, prompt.images)
        except RequestError as error:
            how = self._agent.log_in.how
            ended = build_failure(error, self._environment.secrets, how, time.time(), self._log_in)
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
            end = build_turn_end(answer, at)
            unknown = self._translator.unknown.report("stopReason", answer, at) if end is None else []
            ended = [*unknown, end or TurnEnded(at=at)]
        self._emit([*self._translator.ends(at, answer), *ended])

    async def _answer(self, answer: Answer) -> None:
        reply = self._requests.apply(answer, time.time())
        if answer.decision is Decision.CANCEL:
            await self._cancel()
        await self._requests.send(reply)
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
        settings: list[tuple[Setting, str | None]] = [("model", command.model), ("mode", command.permission_mode)]
        wanted = [(setting, value) for setting, value in settings if value is not None]
        for setting, value in wanted:
            self._find_offer(setting, value)
        switches = [(self._find_switch(id_), is_on) for id_, is_on in command.switches.items()]
        for setting, value in wanted:
            self._emit(await self._set(setting, value))
        for switch, is_on in switches:
            self._emit(await self._switch(switch, is_on))

    async def _set(self, setting: Setting, value: str) -> list[Event]:
        method, params = to_set(setting, self._find_offer(setting, value), value, self._session)
        answer = await self._change(method, params, f"the {setting} {value!r}")
        now = of_answer(answer, self._translator.settings.chosen(setting, value))
        return self._translator.now_set(now, time.time())

    async def _switch(self, switch: AgentSwitch, is_on: bool) -> list[Event]:
        method, params = to_switch(switch, is_on, self._session)
        answer = await self._change(method, params, f"to turn {switch.title or switch.id!r} {'on' if is_on else 'off'}")
        now = of_answer(answer, self._translator.settings.switched(switch.id, is_on=is_on))
        return self._translator.now_set(now, time.time())

    async def _change(self, method: str, params: dict[str, Any], what: str) -> dict[str, Any]:
        """Return the agent's answer to a change; *what* names it in the error."""
        try:
            return await self._client.call(method, params)
        except RequestError as error:
            message = errors.words(error, self._environment.secrets)
            raise RefusedError(f"the agent did not accept {what}: {message}") from error
        except ConnectionError as error:
            raise SessionEndedError(self._session) from error

    def _find_switch(self, id_: str) -> AgentSwitch:
        switch = next((each for each in self._translator.settings.switches if each.id == id_), None)
        if switch is None:
            raise UnableError(f"this agent has no option {id_!r} that is on or off.")
        return switch

    def _find_offer(self, setting: Setting, value: str) -> SettingOption:
        offer, what = self._translator.settings.offer(setting), "model" if setting == "model" else "permission mode"
        if offer is None:
            raise UnableError(f"this agent does not support setting its {what}.")
        if value not in offer.values:
            raise UnableError(f"this agent has no {what} {value!r}.", hint=f"Available: {few(offer.values)}.")
        return offer
