"""The scripted backend keeps every promise, and the clock that its script asks for."""

import asyncio
import os

import msgspec
import pytest

from kasmon.backends import load, names
from kasmon.backends.scripted_backend import backend
from kasmon.model.commands import Prompt, Stop
from kasmon.model.events import (
    LimitLifted,
    LimitReached,
    MessageWritten,
    RequestOpened,
    SessionEnded,
    SessionStarted,
    TurnEnded,
)
from kasmon.model.permission import Decision
from kasmon.model.session_state import SessionState
from tests.support.agents.backend_contract import (
    LIMIT_S,
    AskingContract,
    BackendContract,
    EditingContract,
    InterruptingContract,
    Listener,
    ResumingContract,
    StreamingContract,
)
from tests.support.wait import auntil


class TestScripted(
    BackendContract, StreamingContract, AskingContract, EditingContract, InterruptingContract, ResumingContract
):
    backend = backend

    async def test_the_scripted_agent_runs_in_its_host(self) -> None:
        async with self.opened() as heard:
            assert os.getpid() == heard.session.pid

    async def test_a_whole_turn_with_everything_in_it(self) -> None:
        async with self.opened() as heard:
            await heard.prompt("think a\nplan\n  [~] b\nedit c.py\n  -d\n  +e\nlimit 5\nquestion f?|g|h\nfail i")
            await heard.answer(await heard.until_asked(), Decision.ALWAYS)
            await auntil(lambda: heard.session.requests and heard.session.requests[0].options, LIMIT_S)
            await heard.answer(heard.session.requests[0], Decision.CHOOSE, labels=("h",))
            session = await heard.until(SessionState.IDLE)

            assert ("i", 1, ()) == (session.last_line, session.turns, session.requests)
            assert {LimitReached, LimitLifted, RequestOpened, TurnEnded} <= {type(fact) for fact in heard.facts}

    async def test_each_request_has_a_unique_id(self) -> None:
        ids = []
        for generation in (1, 2):
            async with self.opened(self.launch(generation=generation)) as heard:
                await heard.prompt("ask a &\nask b")
                await auntil(lambda: len(heard.session.requests) == 2, LIMIT_S)
                ids += [request.id for request in heard.session.requests]

        assert 4 == len(set(ids))

    @pytest.mark.parametrize("step", ["say on and on", "notice on and on"])
    async def test_a_script_without_pauses_lets_other_tasks_run(self, step: str) -> None:
        async with self.opened() as heard:
            await heard.prompt(f"{step}\nloop")
            await auntil(lambda: heard.session.turns > 3, LIMIT_S)
            await heard.agent.send(Stop())

            await heard.until_over()

    async def test_an_interrupt_does_not_wait_for_the_pause_to_end(self) -> None:
        launch = msgspec.structs.replace(self.launch(), speed=1000.0)
        async with self.opened(launch) as heard:
            await heard.prompt("slow 10000000")
            await heard.until(SessionState.WORKING)
            await heard.agent.send(Prompt(text="say at last", when="interrupt"))

            assert "at last" == await heard.until_text()

    async def test_its_start_takes_as_long_as_the_script_states(self) -> None:
        launch = msgspec.structs.replace(self.launch(), speed=1000.0, prompt="boot 10000000\nsay never")
        agent = await self.backend.open(launch)
        heard = Listener(agent, launch)
        listening = asyncio.create_task(heard.listen())
        await agent.send(Stop())
        await listening

        assert [SessionEnded] == [type(fact) for fact in heard.facts]

    async def test_its_first_prompt_comes_from_the_host(self) -> None:
        launch = msgspec.structs.replace(self.launch(), prompt="say hello")
        async with self.opened(launch) as heard:
            await heard.prompt("say other")
            await heard.until_said(MessageWritten)
            await heard.until(SessionState.IDLE)

            assert ["other"] == [fact.text for fact in heard.facts if isinstance(fact, MessageWritten)]


def test_the_backend_is_found_by_its_name() -> None:
    assert "scripted" in names()
    assert backend is load("scripted")


async def test_an_agent_that_was_closed_without_a_listener_reports_only_that() -> None:
    agent = await backend.open(TestScripted().launch())
    await agent.aclose()

    assert [SessionEnded] == [type(said) async for said in agent.events()]
    assert SessionStarted not in [type(said) async for said in agent.events()]
