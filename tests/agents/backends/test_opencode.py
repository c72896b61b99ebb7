"""opencode over the Agent Client Protocol, against the model stub."""

import pytest

from kasmon.backends.acp import backend
from kasmon.model.commands import Configure, ConversationFork
from kasmon.model.events import MessageWritten, PlanUpdated, SessionStarted, SettingsChanged, UsageReported
from tests.support.acp.real_contract import LIMIT_S, RealContract, started
from tests.support.agents.real_agent import RealAgent
from tests.support.model_stub import ModelStub
from tests.support.wait import auntil

pytestmark = pytest.mark.agents


class TestOpencode(RealContract):
    mode = "plan"

    @pytest.fixture
    def agent(self, opencode: RealAgent) -> RealAgent:
        return opencode

    async def test_its_conversations_are_listed_copied_and_resumed(self, agent: RealAgent, stub: ModelStub) -> None:
        first = "zero %% say remember me"
        async with self.talk(agent) as talk:
            name = talk.heard.session.resume_id or ""
            assert ("forks",) == talk.only(SessionStarted)[0].abilities
            await talk.turn(first)
        fork = ConversationFork(conversation=name)
        async with self.talk(agent, session="copy", fork=fork) as copy:
            other = copy.heard.session.resume_id
            await copy.turn("go %% say copied")
            assert ["copied"] == [said.text for said in copy.only(MessageWritten)]
        assert {first, "go %% say copied"} <= set(stub.turns[-1]["users"])

        offers = await backend.list_conversations(await started(agent), {}, str(agent.workdir))
        assert {name, other} == {each.id for each in offers.conversations}
        assert all(each.title and each.used_at for each in offers.conversations)
        nowhere = await backend.list_conversations(await started(agent), {}, str(agent.home))
        assert () == nowhere.conversations

    async def test_the_to_do_list_the_figures_and_the_model_are_reported(self, agent: RealAgent) -> None:
        async with self.talk(agent) as talk:
            await talk.turn("go %% todo a|b %% say planned")
            plan, usage = talk.only(PlanUpdated)[-1], talk.only(UsageReported)[-1]
            assert [("a", "open"), ("b", "open")] == [(item.text, item.state) for item in plan.items]
            assert 100_000 == usage.limit
            assert usage.context > 0

            assert "stub/stub-model" == talk.heard.session.model
            other = "stub/other-model"
            assert other in talk.only(SettingsChanged)[0].models
            await talk.heard.agent.send(Configure(model=other))
            await auntil(lambda: talk.heard.session.model == other, LIMIT_S, other)
