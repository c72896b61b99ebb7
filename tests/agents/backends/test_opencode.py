"""opencode over the Agent Client Protocol, against the model stub."""

import pytest

from kasmon.model.commands import Configure
from kasmon.model.events import PlanUpdated, SettingsChanged, UsageReported
from tests.support.acp.real_contract import LIMIT_S, RealContract
from tests.support.agents.real_agent import RealAgent
from tests.support.wait import auntil

pytestmark = pytest.mark.agents


class TestOpencode(RealContract):
    mode = "plan"

    @pytest.fixture
    def agent(self, opencode: RealAgent) -> RealAgent:
        return opencode

    async def test_its_to_do_list_its_figures_and_its_model_are_told(self, agent: RealAgent) -> None:
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
