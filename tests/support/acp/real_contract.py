"""What holds for a real agent behind the acp backend; a test file inherits `RealContract` and names the agent.

The agents are slow to start, so a test is a story: what belongs together happens in one life of the agent.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kasmon.backends.acp import backend
from kasmon.backends.base import Chunk
from kasmon.errors import LaunchError, SessionEndedError
from kasmon.model import events
from kasmon.model.commands import Configure, Interrupt, Launch, Stop
from kasmon.model.permission import Decision, Request
from tests.support.agents.backend_contract import Contract, Listener
from tests.support.agents.real_agent import RealAgent
from tests.support.model_stub import ModelStub
from tests.support.wait import auntil

LIMIT_S = 45.0
"""A net: the first turn of opencode on a busy machine takes more than ten seconds."""
LONG = "touch began; exec python3 -c 'import time; time.sleep(600)'"


class Conversation:
    """A real agent that is listened to."""

    def __init__(self, listener: Listener) -> None:
        self.heard = listener

    def only(self, kind: type[events.Event]) -> list[Any]:
        return [fact for fact in self.heard.facts if isinstance(fact, kind)]

    async def prompt(self, text: str) -> None:
        await self.heard.prompt(text)

    async def count(self, kind: type[events.Event], count: int) -> list[Any]:
        """The facts of *kind*, when there are *count* of them."""
        return await auntil(
            lambda: found if len(found := self.only(kind)) >= count else None, LIMIT_S, f"{count} {kind.__name__}"
        )

    async def asked(self) -> Request:
        await auntil(lambda: self.heard.session.requests, LIMIT_S, "a request")
        return self.heard.session.requests[-1]

    async def turn(self, text: str, decision: Decision | None = None, **more: Any) -> events.TurnEnded:
        """Have a whole turn, and answer what it asks with *decision*."""
        turns = len(self.only(events.TurnEnded))
        await self.prompt(text)
        if decision is not None:
            await self.heard.answer(await self.asked(), decision, **more)
        ended: events.TurnEnded = (await self.count(events.TurnEnded, turns + 1))[-1]
        return ended


async def started(agent: RealAgent, **more: Any) -> Launch:
    """How *agent* is started; it writes a file, which the loop does not wait for."""
    return await asyncio.to_thread(agent.launch, handshake_s=LIMIT_S, **more)


class RealContract(Contract):
    """What opencode and gemini have in common."""

    backend = backend
    mode: str
    """A mode that it can be given."""

    @pytest.fixture
    def agent(self) -> RealAgent:
        raise NotImplementedError

    @asynccontextmanager
    async def talk(self, agent: RealAgent, **more: Any) -> AsyncIterator[Conversation]:
        async with self.opened(await started(agent, **more)) as listener:
            yield Conversation(listener)

    async def test_it_announces_its_slash_commands(self, agent: RealAgent) -> None:
        async with self.talk(agent) as talk:
            (announced,) = (await talk.count(events.CommandsAnnounced, 1))[:1]
            assert announced.slash_commands
            assert any(each.text for each in announced.slash_commands)
            await talk.turn("go %% say hello")

    async def test_the_agent_writes_thinks_and_requests_permission_before_any_change(self, agent: RealAgent) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% think hm %% say at work %% bash echo one >made.txt %% say done", Decision.ALLOW)
            assert "one\n" == (agent.workdir / "made.txt").read_text()
            assert "hm" in talk.only(events.ThoughtWritten)[0].text
            assert ["at work", "done"] == [said.text for said in talk.only(events.MessageWritten)]
            assert [True] == [tool.ok for tool in talk.only(events.ToolFinished)]

            await talk.turn("go %% write new.txt|a\\nb\\n %% say written", Decision.ALLOW)
            await talk.turn("go %% edit new.txt|b|c %% say edited", Decision.ALLOW)
            command, _, edit = (opened.request for opened in talk.only(events.RequestOpened))
            assert ("echo one >made.txt", False) == (command.shown, command.is_diff)
            assert edit.is_diff
            assert "\n a\n-b\n+c\n" in edit.shown
            assert "a\nc\n" == (agent.workdir / "new.txt").read_text()
            assert "-b\n+c\n" in talk.only(events.ToolFinished)[-1].diff

            await talk.turn("go %% bash touch no.txt %% say after", Decision.DENY, reason="not now")
            await talk.turn("go %% bash touch no.txt %% say after", Decision.CANCEL)
            assert ["done", "interrupted"] == [ended.reason for ended in talk.only(events.TurnEnded)[-2:]]
            assert not (agent.workdir / "no.txt").exists()

            await talk.heard.agent.send(Configure(permission_mode=self.mode))
            await auntil(lambda: talk.heard.session.permission_mode == self.mode, LIMIT_S, self.mode)
            await talk.heard.agent.send(Stop(grace_s=LIMIT_S))
            ended = (await talk.heard.until_over())[-1]
            assert isinstance(ended, events.SessionEnded)
            assert (0, None) == (ended.exit_code, ended.signal)

    async def test_an_interrupt_wherever_it_is_and_an_error_of_its_provider_end_the_turn_and_not_the_agent(
        self, agent: RealAgent
    ) -> None:
        async with self.talk(agent) as talk:
            await talk.prompt("go %% say first %% slow 600 w")
            await auntil(lambda: [said for said in talk.heard.all if isinstance(said, Chunk)], LIMIT_S, "a word")
            await talk.heard.agent.send(Interrupt())
            await talk.count(events.TurnEnded, 1)

            await talk.prompt(f"go %% bash {LONG} %% say never")
            await talk.heard.answer(await talk.asked(), Decision.ALLOW)
            await auntil((agent.workdir / "began").exists, LIMIT_S, "the command")
            await talk.heard.agent.send(Interrupt())
            await talk.count(events.TurnEnded, 2)

            await talk.prompt("go %% bash touch no.txt %% say never")
            request = await talk.asked()
            await talk.heard.agent.send(Interrupt())
            await talk.count(events.TurnEnded, 3)
            assert [request.id] == [withdrawn.request for withdrawn in talk.only(events.RequestWithdrawn)]

            assert ["interrupted"] * 3 == [ended.reason for ended in talk.only(events.TurnEnded)]
            await talk.turn("go %% say still here")
            assert "still here" == talk.only(events.MessageWritten)[-1].text
            assert not (agent.workdir / "no.txt").exists()

            ended = await talk.turn("go %% fail 400")
            assert "error" == ended.reason
            assert "400" in ended.error

            assert "done" == (await talk.turn("go %% say fine")).reason

    async def test_a_killed_agent_resumes_the_same_conversation(self, agent: RealAgent, stub: ModelStub) -> None:
        prompt = "first %% say one %% slow 600 w"
        async with self.talk(agent) as talk:
            name = talk.heard.session.resume_id
            await talk.turn("zero %% say remember me")
            said = len(talk.heard.all)
            await talk.prompt(prompt)
            await auntil(lambda: len(talk.heard.all) > said + 2, LIMIT_S, "a word")
            assert talk.heard.session.pid is not None
            os.kill(talk.heard.session.pid, signal.SIGKILL)
            ended = (await talk.heard.until_over())[-1]
            assert isinstance(ended, events.SessionEnded)
            assert "SIGKILL" == ended.signal
            with pytest.raises(SessionEndedError):
                await talk.prompt("go on")
        for generation in (2, 3):
            async with self.talk(agent, resume=name, remembers=prompt, generation=generation) as again:
                started = again.heard.facts[0]
                assert isinstance(started, events.SessionStarted)
                assert (name, generation) == (started.resume_id, started.generation)
                assert started.proof.startswith("same id, and its own history contains our last prompt")
                assert [] == again.only(events.MessageWritten)

                prompt = f"number {generation} %% say here again"
                await again.turn(prompt)
                assert ["here again"] == [said.text for said in again.only(events.MessageWritten)]
                assert {"zero %% say remember me", prompt} <= set(stub.turns[-1]["users"])

    async def test_an_unknown_conversation_is_an_error(self, agent: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        unknown = "ses_0000000000000000000000000"
        with pytest.raises(LaunchError, match=f"did not resume the conversation '{unknown}'"):
            await backend.open(await started(agent, resume=unknown))

    async def test_an_unknown_model_is_an_error(self, agent: RealAgent, stub: ModelStub) -> None:
        stub.must_be_called = False
        with pytest.raises(LaunchError, match="has no model 'no-such-model'"):
            await backend.open(await started(agent, model="no-such-model"))
