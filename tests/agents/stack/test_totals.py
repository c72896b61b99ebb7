"""What a session has used goes on, however its agents ended: by the real agents' own figures."""

import asyncio
import os
import signal
from importlib import import_module
from typing import Any

import pytest

from kasmon.model.commands import ConversationUsage, Prompt, Stop
from kasmon.model.events import SessionStarted, TurnEnded, UsageReported
from tests.support.agents.backend_contract import Listener
from tests.support.agents.real_agent import BACKENDS, MODEL, RealAgent
from tests.support.wait import auntil

pytestmark = pytest.mark.agents
LIMIT_S = 60.0


class Life:
    """The processes of one conversation, one after the other, with what its host would know of those before."""

    def __init__(self, agent: RealAgent) -> None:
        self._agent = agent
        self._generation = 0
        self._resume: str | None = None
        self._remembers = ""
        self.used = ConversationUsage()

    async def process(self, *, dies: bool) -> list[UsageReported]:
        """One process and one turn, at the end of which it *dies* or ends cleanly; what it reported."""
        self._generation += 1
        model = MODEL if self._agent.name == "codex" else ""
        more: dict[str, Any] = {"resume": self._resume, "remembers": self._remembers, "used": self.used, "model": model}
        launch = await asyncio.to_thread(lambda: self._agent.launch(generation=self._generation, **more))
        room = await asyncio.to_thread(import_module, f"kasmon.backends.{BACKENDS[self._agent.name]}")
        async with Listener(await room.backend.open(launch), launch).listening() as heard:
            await heard.until_said(SessionStarted)
            self._remembers = f"go %% say hello {self._generation}"
            await heard.agent.send(Prompt(text=self._remembers))
            await auntil(lambda: any(isinstance(fact, TurnEnded) for fact in heard.facts), LIMIT_S, "the turn's end")
            self._resume = heard.session.resume_id
            if dies:
                assert heard.session.pid is not None
                os.kill(heard.session.pid, signal.SIGKILL)
            else:
                await heard.agent.send(Stop(grace_s=20.0))
            await heard.until_over()
        reports = [fact for fact in heard.facts if isinstance(fact, UsageReported)]
        last = reports[-1]
        self.used = ConversationUsage(input=last.input, output=last.output, cost_usd=heard.session.cost_usd)
        return reports


@pytest.fixture(params=["claude", "codex"])
def agent(request: pytest.FixtureRequest) -> RealAgent:
    found: RealAgent = request.getfixturevalue(request.param)
    return found


async def test_tokens_and_costs_are_summed_over_clean_ends_and_kills(agent: RealAgent) -> None:
    """Each turn of the model stub uses as much as any other."""
    life = Life(agent)
    totals = []
    for dies in (False, True, True, False):
        before = life.used
        reports = await life.process(dies=dies)
        totals.append((life.used.input, life.used.output, round(life.used.cost_usd or 0.0, 9)))

        assert all(report.input > before.input and report.output > before.output for report in reports)

    once = totals[0]
    expected = [figure * n for n in (1, 2, 3, 4) for figure in once]
    assert expected == pytest.approx([figure for total in totals for figure in total])
