"""What a host knows better than the agent it opens, and what it says in the place of one that died."""

import time

import pytest

from kasmon.model.commands import ConversationUsage
from kasmon.model.events import RequestWithdrawn, SessionEnded, SessionStarted, UsageReported
from tests.host.house import House
from tests.host.puppet import Puppet, asked
from tests.waiting import auntil


async def test_a_new_agent_is_told_what_its_session_had_used(house: House, puppet: Puppet) -> None:
    """The figures of most agents begin anew with each process; a session's go on."""
    async with house.hosting(puppet):
        puppet.say(UsageReported(at=time.time(), input=400, output=10, context=90, cost_usd=0.5))
        await auntil(lambda: house.only(UsageReported))
    again = Puppet()
    async with house.hosting(again):
        await auntil(lambda: len(house.only(SessionStarted)) == 2)

    assert puppet.launch is not None
    assert again.launch is not None
    assert ConversationUsage() == puppet.launch.used
    assert ConversationUsage(input=400, output=10, cost_usd=0.5) == again.launch.used


@pytest.mark.parametrize("how", ["it says so", "its events end", "its backend fails"])
async def test_the_requests_of_an_agent_that_died_are_void_at_once(house: House, puppet: Puppet, how: str) -> None:
    """The log says so itself, whatever the agent's backend still said."""
    async with house.hosting(puppet):
        await auntil(lambda: puppet.launch is not None)
        puppet.say(asked("one", id="a"), asked("two", id="b"))
        await auntil(lambda: len(house.session().asks) == 2)
        one, two = house.session().asks
        match how:
            case "it says so":
                puppet.say(SessionEnded(at=time.time(), signal="SIGKILL"))
            case "its events end":
                puppet.hang_up()
            case _:
                puppet.break_down(ValueError("broken"))
        await auntil(lambda: house.only(SessionEnded))

    withdrawn = [fact for fact in house.events() if isinstance(fact, RequestWithdrawn | SessionEnded)]
    assert [(one.id, "the agent ended"), (two.id, "the agent ended")] == [
        (fact.request, fact.why) for fact in withdrawn[:-1] if isinstance(fact, RequestWithdrawn)
    ]
    assert isinstance(withdrawn[-1], SessionEnded)
