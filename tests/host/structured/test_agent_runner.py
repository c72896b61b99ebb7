"""What a host knows better than the agent it opens, and what it says in the place of one that died."""

import time

import pytest

from kasmon.model.commands import ConversationUsage
from kasmon.model.events import RequestWithdrawn, SessionEnded, SessionStarted, UsageReported
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.host.env import Env
from tests.support.wait import auntil


async def test_a_new_agent_gets_the_earlier_usage_of_its_session(env: Env, fake: FakeAgent) -> None:
    """The figures of most agents begin anew with each process; a session's go on."""
    async with env.hosting(fake):
        fake.say(UsageReported(at=time.time(), input=400, output=10, context=90, cost_usd=0.5))
        await auntil(lambda: env.only(UsageReported))
    again = FakeAgent()
    async with env.hosting(again):
        await auntil(lambda: len(env.only(SessionStarted)) == 2)

    assert fake.launch is not None
    assert again.launch is not None
    assert ConversationUsage() == fake.launch.used
    assert ConversationUsage(input=400, output=10, cost_usd=0.5) == again.launch.used


@pytest.mark.parametrize("how", ["it says so", "its events end", "its backend fails"])
async def test_the_requests_of_an_agent_that_died_are_withdrawn_at_once(env: Env, fake: FakeAgent, how: str) -> None:
    """The log says so itself, whatever the agent's backend still said."""
    async with env.hosting(fake):
        await auntil(lambda: fake.launch is not None)
        fake.say(asked("one", id="a"), asked("two", id="b"))
        await auntil(lambda: len(env.session().requests) == 2)
        one, two = env.session().requests
        match how:
            case "it says so":
                fake.say(SessionEnded(at=time.time(), signal="SIGKILL"))
            case "its events end":
                fake.hang_up()
            case _:
                fake.break_down(ValueError("broken"))
        await auntil(lambda: env.only(SessionEnded))

    withdrawn = [fact for fact in env.events() if isinstance(fact, RequestWithdrawn | SessionEnded)]
    assert [(one.id, "the agent ended"), (two.id, "the agent ended")] == [
        (fact.request, fact.why) for fact in withdrawn[:-1] if isinstance(fact, RequestWithdrawn)
    ]
    assert isinstance(withdrawn[-1], SessionEnded)
