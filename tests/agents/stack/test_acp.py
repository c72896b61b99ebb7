"""A real agent in an editor: `kasmon acp` over the agent's own session, which the dashboard's inbox shows too."""

import asyncio
import json

import pytest

from kasmon.model.events import RequestAnswered
from tests.support.acp.editor import editor_process
from tests.support.agents.full_stack import Stack, beside, stacked

pytestmark = pytest.mark.agents
stub, stack = pytest.fixture(beside), pytest.fixture(stacked)


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_an_editor_prompts_answers_and_loads_a_real_agents_session(stack: Stack) -> None:
    session = stack.new("worker", "go %% say ready")
    stack.turned(session)

    async def story() -> None:
        async with editor_process(session, variables=stack.variables) as one:
            await one.initialize()
            assert session == await one.new(str(stack.agent.workdir))
            await one.until_text("ready")  # its history
            turn = asyncio.create_task(one.prompt(session, "go %% bash touch made.txt %% say finished"))
            request = await one.until_asked()
            assert "touch made.txt" in json.dumps(request)
            one.choices.put_nowait("allow")
            assert "end_turn" == await turn
            assert one.text().endswith("finished")
            assert "tool_call" in one.kinds()

    asyncio.run(story())
    assert (stack.agent.workdir / "made.txt").exists()
    [answer] = stack.facts(session, RequestAnswered)
    assert answer.who.startswith("editor Zed, ")
