"""What every backend promises. A backend's test file inherits `BackendContract` and one contract for each ability.

The agent on the other side is always the scripted one, in this process or in a terminal: so a prompt is a script.
Whatever a backend says is folded as a host would fold it; where that is enough, a test asks for the state only.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import pytest

from kasmon.backends.base import Agent, Backend, Chunk, SecretsLearned
from kasmon.errors import RequestClosedError, SessionEndedError, StaleRequestError
from kasmon.model import events
from kasmon.model.commands import Answer, Interrupt, Launch, Mode, Prompt, Stop
from kasmon.model.permission import Decision, Request, RequestKind, SessionId, digest_of
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.model.session_state import SessionState
from tests.support.wait import auntil

LIMIT_S = 100.0
"""A net under an agent that hangs, no expectation."""


class Listener:
    """All that an agent has said so far, and the session it adds up to."""

    def __init__(self, agent: Agent, launch: Launch) -> None:
        self.agent = agent
        self.session: Session = created(launch, time.time())
        self.facts: list[events.Event] = []
        self.states: list[SessionState] = []
        self.all: list[events.Event | Chunk] = []
        self.is_over = False

    async def listen(self) -> None:
        async for event in self.agent.events():
            if isinstance(event, SecretsLearned):
                continue
            self.all.append(event)
            if not isinstance(event, Chunk):
                self.facts.append(event)
                self.session = apply(self.session, event)
                self.states.append(self.session.state)
        self.is_over = True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """Listen to the agent, which is ended whatever happens."""
        listening = asyncio.create_task(self.listen())
        try:
            yield self
        finally:
            await self.agent.aclose()
            async with asyncio.timeout(LIMIT_S):
                await listening

    async def until(self, state: SessionState) -> Session:
        await auntil(lambda: self.session.state is state, LIMIT_S, f"the state {state}")
        return self.session

    async def until_been(self, state: SessionState) -> None:
        """Until it was in *state* once, however shortly."""
        await auntil(lambda: state in self.states, LIMIT_S, f"the state {state}")

    async def until_said(self, kind: type[events.Event]) -> events.Event:
        return await auntil(lambda: next((f for f in self.facts if type(f) is kind), None), LIMIT_S, kind.__name__)

    async def until_text(self) -> str:
        """What it said last, once it has said anything."""
        await self.until_said(events.MessageWritten)
        return [fact.text for fact in self.facts if isinstance(fact, events.MessageWritten)][-1]

    async def until_over(self) -> list[events.Event]:
        await auntil(lambda: self.is_over, LIMIT_S, "the end of its events")
        return self.facts

    async def until_asked(self) -> Request:
        await auntil(lambda: self.session.requests, LIMIT_S, "a request")
        return self.session.requests[-1]

    async def prompt(self, text: str) -> None:
        await self.agent.send(Prompt(text=text))

    async def answer(self, request: Request, decision: Decision, **more: object) -> None:
        answer = Answer(request=request.id, digest=request.digest, decision=decision, **more)  # type: ignore[arg-type]
        await self.agent.send(answer)
        fact = events.RequestAnswered(at=time.time(), request=request.id, decision=decision)
        self.session = apply(self.session, fact)  # as the host notes it


class Contract:
    backend: Backend

    def launch(self, generation: int = 1, resume: str | None = None) -> Launch:
        """How the agent of a test is started; a terminal's backend gives the program, too."""
        return Launch(
            session=SessionId("contract"),
            name="contract",
            agent="scripted",
            mode=Mode.SDK,
            backend=self.backend.name,
            speed=0.0,
            generation=generation,
            resume=resume,
        )

    @asynccontextmanager
    async def opened(self, launch: Launch | None = None) -> AsyncIterator[Listener]:
        """An agent that is idle, and is ended whatever happens."""
        launch = launch or self.launch()
        async with Listener(await self.backend.open(launch), launch).listening() as listener:
            await listener.until(SessionState.IDLE)
            yield listener


class StreamingContract(Contract):
    """`streams`"""

    async def test_a_message_is_shown_while_it_is_streamed(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("say one two\n  three")
            message = await heard.until_said(events.MessageWritten)

            before = heard.all[: heard.all.index(message)]
            assert "one two\nthree" == "".join(said.text for said in before if isinstance(said, Chunk))


class AskingContract(Contract):
    """`asks`"""

    async def test_a_request_carries_the_digest_of_what_it_shows(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            request = await heard.until_asked()

            assert digest_of(request) == request.digest
            assert {"command": "git push"} == request.input

    async def test_an_allowed_agent_continues(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            await heard.answer(await heard.until_asked(), Decision.ALLOW)

            await heard.until_said(events.ToolFinished)

    async def test_a_denied_action_is_not_executed(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push\nsay after")
            await heard.answer(await heard.until_asked(), Decision.DENY, reason="not now")
            await auntil(lambda: [f for f in heard.facts if isinstance(f, events.MessageWritten) and f.text == "after"])

            assert not [fact for fact in heard.facts if isinstance(fact, events.ToolStarted)]

    async def test_an_answer_to_another_text_is_refused(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            request = await heard.until_asked()
            name = request.id

            with pytest.raises(StaleRequestError):
                await heard.agent.send(Answer(request=name, digest="0" * 64, decision=Decision.ALLOW))

    async def test_a_request_is_answered_once(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push\nhang")
            request = await heard.until_asked()
            await heard.answer(request, Decision.ALLOW)

            with pytest.raises(RequestClosedError):
                await heard.answer(request, Decision.ALLOW)

    async def test_its_death_withdraws_its_requests_before_its_end_is_reported(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            request = await heard.until_asked()
            await self.die(heard)
            *before, ended = await heard.until_over()

            assert isinstance(ended, events.SessionEnded)
            assert [request.id] == [fact.request for fact in before if isinstance(fact, events.RequestWithdrawn)]

    async def die(self, listener: Listener) -> None:
        """Kill its process; one that lives in ours is closed."""
        if listener.session.pid in (None, os.getpid()):
            await listener.agent.aclose()
        else:
            os.kill(listener.session.pid, signal.SIGKILL)

    async def test_a_request_without_an_answer_stays_open(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            await heard.until_asked()
            await heard.prompt("say I am next")
            await heard.until(SessionState.ASKING)

            assert not [fact for fact in heard.facts if isinstance(fact, events.ToolStarted | events.MessageWritten)]


class EditingContract(Contract):
    """`edits_input`"""

    async def test_the_edited_input_is_used(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask rm -r /")
            await heard.answer(await heard.until_asked(), Decision.EDIT, input={"command": "rm -r build"})
            tool = await heard.until_said(events.ToolStarted)

            assert isinstance(tool, events.ToolStarted)
            assert "rm -r build" in tool.input


class InterruptingContract(Contract):
    """`interrupts`"""

    async def test_an_interrupt_ends_the_turn(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("hang")
            await heard.until(SessionState.WORKING)
            await heard.agent.send(Interrupt())

            await heard.until(SessionState.IDLE)

    async def test_an_interrupt_withdraws_open_requests(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            await heard.until(SessionState.ASKING)
            await heard.agent.send(Interrupt())

            assert () == (await heard.until(SessionState.IDLE)).requests


class ResumingContract(Contract):
    """`resumes`"""

    async def test_the_passed_conversation_is_resumed(self) -> None:
        async with self.opened() as heard:
            name = heard.session.resume_id
        async with self.opened(self.launch(generation=2, resume=name)) as again:
            assert name
            assert (name, 2) == (again.session.resume_id, again.session.generation)


CONTRACTS = {
    "streams": StreamingContract,
    "asks": AskingContract,
    "edits_input": EditingContract,
    "interrupts": InterruptingContract,
    "resumes": ResumingContract,
}


class BackendContract(Contract):
    """What holds for every agent, whatever its abilities."""

    def test_each_ability_has_its_contract_here(self) -> None:
        inherited = {ability for ability, contract in CONTRACTS.items() if issubclass(type(self), contract)}

        assert {ability for ability in CONTRACTS if getattr(self.backend.abilities, ability)} == inherited

    async def test_the_first_event_is_its_start(self) -> None:
        async with self.opened() as heard:
            started = heard.facts[0]

            assert isinstance(started, events.SessionStarted)
            assert (1, self.backend.name) == (started.generation, started.backend)
            assert heard.session.exists

    async def test_a_prompt_starts_a_turn(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("hang")

            await heard.until(SessionState.WORKING)

    async def test_a_request_waits_for_the_user(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")

            assert RequestKind.PERMISSION is (await heard.until(SessionState.ASKING)).asking

    @pytest.mark.parametrize(
        ("script", "code", "signal"), [("crash 3", 3, None), ("crash 0", 0, None), ("crash SIGKILL", None, "SIGKILL")]
    )
    async def test_its_end_has_its_exit(self, script: str, code: int | None, signal: str | None) -> None:
        async with self.opened() as heard:
            await heard.prompt(script)
            ended = (await heard.until_over())[-1]

            assert isinstance(ended, events.SessionEnded)
            assert (code, signal) == (ended.exit_code, ended.signal)
            assert heard.session.crashed is bool(code or signal)

    async def test_an_end_leaves_no_request_open(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("ask git push")
            await heard.until(SessionState.ASKING)
            await heard.agent.send(Stop(grace_s=0.0))
            await heard.until_over()

            assert () == heard.session.requests

    async def test_a_stop_ends_it(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("hang")
            await heard.until(SessionState.WORKING)
            await heard.agent.send(Stop(grace_s=0.0))
            await heard.until_over()

            assert SessionState.ENDED is heard.session.state
            assert not heard.session.crashed

    async def test_closing_twice_ends_the_session_once(self) -> None:
        """A host that dies may close what is already closed."""
        async with self.opened() as heard:
            await heard.agent.aclose()
            await heard.agent.aclose()
            facts = await heard.until_over()

            assert 1 == sum(isinstance(fact, events.SessionEnded) for fact in facts)
            assert isinstance(facts[-1], events.SessionEnded)

    async def test_an_ended_agent_accepts_no_command(self) -> None:
        async with self.opened() as heard:
            await heard.agent.aclose()
            await heard.until_over()

            with pytest.raises(SessionEndedError):
                await heard.prompt("say hello")

    async def test_all_its_events_can_be_logged_in_order(self) -> None:
        async with self.opened() as heard:
            await heard.prompt('say a\ntool Bash {"command": "ls"} => b\nask git push')
            await heard.until(SessionState.ASKING)

            assert heard.facts == [events.decode(events.encode(fact)) for fact in heard.facts]
            times = [fact.at for fact in heard.facts if not isinstance(fact, events.RequestWithdrawn)]
            assert sorted(times) == times
