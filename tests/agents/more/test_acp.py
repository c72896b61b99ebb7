"""More agents over the Agent Client Protocol: a whole turn with a tool and a permission, against the model stub."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from kasmon.backends.acp import backend
from kasmon.errors import LaunchError
from kasmon.model import events
from kasmon.model.permission import Decision
from tests.support.acp.real_contract import Conversation, started
from tests.support.agents.backend_contract import Contract
from tests.support.agents.live_run import keep
from tests.support.agents.more_agents import AGENTS
from tests.support.agents.real_agent import RealAgent, family, pinned_version
from tests.support.model_stub import ModelStub

pytestmark = pytest.mark.more_agents
ASKING = ("cline", "copilot", "droid", "goose", "grok", "kimi", "qwen")
"""They ask before they run a command."""
PROMPT = "go %% think hm %% say at work %% bash echo one >made.txt %% say all done"


class TestAcp(Contract):
    backend = backend

    @asynccontextmanager
    async def talk(self, agent: RealAgent, **more: object) -> AsyncIterator[Conversation]:
        async with self.opened(await started(agent, **more)) as heard:
            yield Conversation(heard)

    @pytest.mark.parametrize("name", [*ASKING, "pi-acp"])
    async def test_an_allowed_command_runs_and_is_reported(self, agent: RealAgent, name: str) -> None:
        began = time.monotonic()
        async with self.talk(agent) as talk:
            await talk.turn(PROMPT, Decision.ALLOW if name in ASKING else None)
            turn_s = time.monotonic() - began
            memory = sum(_rss(process) for process in family(agent.home)) >> 20
            assert "one\n" == (agent.workdir / "made.txt").read_text()
            said = " ".join(message.text for message in talk.only(events.MessageWritten))
            assert "at work" in said
            assert "all done" in said
            assert "hm" in talk.only(events.ThoughtWritten)[0].text
            assert [True] == [tool.ok for tool in talk.only(events.ToolFinished)]
        keep(name.removesuffix("-acp"), pinned_version(name), turn_s=round(turn_s, 1), memory_mib=memory)

    @pytest.mark.parametrize("name", ASKING)
    async def test_a_denied_command_does_not_run(self, agent: RealAgent, name: str) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% bash echo one >no.txt %% say after", Decision.DENY)
            assert ["echo one >no.txt" in opened.request.shown for opened in talk.only(events.RequestOpened)] == [True]
        assert not (agent.workdir / "no.txt").exists()

    @pytest.mark.parametrize("name", [*ASKING, "pi-acp"])
    async def test_an_error_of_its_provider_ends_its_turn_and_not_the_agent(self, agent: RealAgent, name: str) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% fail 400")
            await talk.turn("go %% say still here")
            assert "still here" in " ".join(message.text for message in talk.only(events.MessageWritten))

    @pytest.mark.parametrize("name", [*ASKING, "pi-acp"])
    async def test_it_resumes_its_conversation_by_id(self, agent: RealAgent, name: str, stub: ModelStub) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% say remember me")
            resume = talk.heard.session.resume_id
        async with self.talk(agent, generation=2, resume=resume, remembers="go %% say remember me") as again:
            await again.turn("go %% say here again")
        assert any("remember me" in user for user in stub.turns[-1]["users"])


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


LOG_IN = {
    "auggie": "auggie login",
    "cline": "Sign in with Cline",
    "copilot": "copilot login",
    "droid": "Login",
}
"""Without an account they refuse a conversation; what the user is told."""


@pytest.mark.parametrize("name", LOG_IN)
async def test_without_an_account_the_error_shows_how_to_log_in(new_agent: RealAgent, name: str) -> None:
    with pytest.raises(LaunchError, match="requires a login") as raised:
        await backend.open(await started(new_agent))
    assert LOG_IN[name] in f"{raised.value}{raised.value.hint}"


def test_every_agent_that_speaks_the_protocol_has_a_test() -> None:
    assert {"aider", "amp", "pi"} == set(AGENTS) - {*ASKING, *LOG_IN, "pi-acp"}
