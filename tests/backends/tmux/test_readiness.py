"""When an agent that starts in a terminal can be typed to."""

import asyncio
import math

from kasmon.backends.tmux.readiness import wait_until_settled


class Agent:
    """An agent that prints until its state was looked at *looks* times."""

    def __init__(self, looks: float, *, reports_state: bool) -> None:
        self.reports_state = reports_state
        self.looks = 0
        self._until = looks

    @property
    def printed_at(self) -> float:
        self.looks += 1
        return asyncio.get_running_loop().time() if self.looks < self._until else 0.0


async def test_an_agent_that_reports_its_state_is_not_typed_to_while_its_screen_still_changes() -> None:
    """Codex shows an empty input box right before the question whether it may use the folder."""
    agent = Agent(6, reports_state=True)

    await wait_until_settled(agent)

    assert agent.looks >= 6


async def test_an_agent_that_never_stops_printing_is_typed_to_once_it_has_reported_its_state_for_a_while() -> None:
    async with asyncio.timeout(9):
        await wait_until_settled(Agent(math.inf, reports_state=True))


async def test_an_agent_that_reports_nothing_is_typed_to_once_it_is_silent() -> None:
    agent = Agent(3, reports_state=False)

    await wait_until_settled(agent)

    assert agent.looks >= 3
