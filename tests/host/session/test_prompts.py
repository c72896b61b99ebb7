"""What becomes of a prompt: which goes at once, which waits, and the receipt of each."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from kasmon.config import Limits
from kasmon.errors import NotFoundError, RefusedError, SessionBusyError, TimedOutError, UsageError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.connect import HostLink
from kasmon.host.session import prompts
from kasmon.model.commands import NO_TURN, AgentCommand, Interrupt, Prompt, ReceiptId, ReceiptState, Requeue
from kasmon.model.events import LimitReached, ReceiptMoved, SessionEnded, SessionStarted, TurnEnded, TurnStarted
from kasmon.model.session_state import SessionState
from tests.host.house import ME, House, do, prompt
from tests.host.puppet import ABLE, Puppet
from tests.waiting import auntil, until


def turn_ended(reason: str = "done", error: str = "") -> TurnEnded:
    return TurnEnded(at=time.time(), reason=reason, error=error)  # type: ignore[arg-type]


def steps(house: House, n: int = 1) -> list[str]:
    """The steps of the n-th receipt."""
    return [str(m.receipt.state) for m in house.only(ReceiptMoved) if m.receipt.id.endswith(f"-r{n}")]


async def ready(house: House) -> HostLink:
    await auntil(lambda: house.only(SessionStarted))
    return await house.linked()


async def until_state(house: House, state: SessionState) -> None:
    await auntil(lambda: house.session().state is state, what=f"the state {state}")


async def test_an_idle_agent_gets_a_prompt_at_once(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        assert "submitted" == await prompt(await ready(house), "tidy up", when="idle")
        await until_state(house, SessionState.WORKING)
        puppet.say(turn_ended())
        await until_state(house, SessionState.IDLE)
        await auntil(lambda: "finished" in steps(house))

    assert ["typed", "submitted", "started", "finished"] == steps(house)
    assert [Prompt(text="tidy up", when="now")] == [wish for wish in puppet.told if isinstance(wish, Prompt)]


async def test_a_receipt_names_the_origin_of_its_prompt_to_its_end(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        await do(link, Prompt(text="tidy up", by="peer"))
        await until_state(house, SessionState.WORKING)
        await do(link, Prompt(text="and then", when="idle", by="wave"))
        puppet.say(turn_ended())
        await auntil(lambda: len(puppet.prompts) == 2)

    assert {("r1", "peer"), ("r2", "wave")} == {
        (moved.receipt.id.rpartition("-")[2], moved.receipt.by) for moved in house.only(ReceiptMoved)
    }


async def test_prompts_for_an_idle_agent_wait_for_the_end_of_each_turn_in_order(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        states = [await prompt(link, text, when="idle") for text in ("one", "two", "three")]
        assert ["submitted", "queued", "queued"] == states
        for count in (1, 2, 3):
            await auntil(lambda count=count: len(puppet.prompts) == count)  # type: ignore[misc]
            await auntil(lambda count=count: 3 - count == house.session().queue)  # type: ignore[misc]
            await until_state(house, SessionState.WORKING)
            puppet.say(turn_ended())
        await auntil(lambda: [("one", "finished"), ("two", "finished"), ("three", "finished")] == house.receipts())

    assert ["one", "two", "three"] == puppet.prompts
    assert ["queued", "typed", "submitted", "started", "finished"] == steps(house, 2)


async def test_a_prompt_for_now_goes_into_the_running_turn(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "one")
        await until_state(house, SessionState.WORKING)
        assert "submitted" == await prompt(link, "and also", when="now")

        assert ["one", "and also"] == puppet.prompts


async def test_what_an_agent_took_into_a_turn_of_another_and_never_named_is_unsure(
    house: House, puppet: Puppet
) -> None:
    async def steered(wish: AgentCommand) -> None:
        if wish != Prompt(text="and also"):
            puppet.obey(wish)

    puppet.on_wish = steered
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "and also"):
            await prompt(link, text)
            await until_state(house, SessionState.WORKING)
        puppet.say(turn_ended())
        await until_state(house, SessionState.IDLE)
        await prompt(link, "two")
        puppet.say(turn_ended())
        await auntil(lambda: ["finished", "unsure", "finished"] == [state for _, state in house.receipts()])


async def test_what_still_waits_within_the_agent_is_not_said_to_be_finished(house: House, puppet: Puppet) -> None:
    """It keeps what comes into a turn, and takes a turn for each: the third waits through the ends of two."""

    async def keeps(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            puppet.obey(wish)

    puppet.on_wish = keeps
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "two", "three"):
            await prompt(link, text)
            await until_state(house, SessionState.WORKING)
        puppet.say(turn_ended(), TurnStarted(at=time.time(), prompt="two"), turn_ended())
        await auntil(lambda: [("one", "finished"), ("two", "finished"), ("three", "submitted")] == house.receipts())
        await prompt(link, "first of all", when="interrupt")
        puppet.say(TurnStarted(at=time.time(), prompt="first of all"), turn_ended())
        await auntil(lambda: ("first of all", "finished") in house.receipts())

        assert ("three", "submitted") in house.receipts()


@pytest.mark.parametrize("when", ["now", "interrupt"])
async def test_an_agent_whose_turn_ended_at_its_limit_can_be_prompted_again(
    house: House, puppet: Puppet, when: str
) -> None:
    """Nobody may ever tell that the limit is over, and there is no turn to wait for, nor one to end."""
    puppet.abilities = msgspec.structs.replace(ABLE, steers=False)
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "one")
        puppet.say(LimitReached(at=time.time()), turn_ended("limit"))
        await auntil(lambda: house.only(TurnEnded))
        await until_state(house, SessionState.LIMITED)
        assert "submitted" == await prompt(link, "two", when=when)
        await until_state(house, SessionState.WORKING)

    assert ["one", "two"] == puppet.prompts
    assert not any(isinstance(wish, Interrupt) for wish in puppet.told)


async def test_what_an_agent_let_go_of_without_taking_it_in_is_lost(house: House, puppet: Puppet) -> None:
    async def forgets(wish: AgentCommand) -> None:
        if wish != Prompt(text="and also\nthis"):
            puppet.obey(wish)

    puppet.on_wish = forgets
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "and also\nthis"):
            await prompt(link, text)
            await until_state(house, SessionState.WORKING)
        puppet.say(TurnEnded(at=time.time(), reason="interrupted", dropped=("and also\nthis",)))
        await auntil(lambda: [("one", "finished"), ("and also", "lost")] == house.receipts())

    assert "the turn ended before the agent had accepted it" == house.session().receipts[1].reason


async def test_an_interrupting_prompt_ends_the_turn_first(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "one")
        await until_state(house, SessionState.WORKING)
        assert "submitted" == await prompt(link, "no, this", when="interrupt")
        await auntil(lambda: len(house.only(TurnStarted)) == 2)

    assert [Prompt, Interrupt, Prompt] == [type(wish) for wish in puppet.told[:3]]
    assert ("one", "finished") == house.receipts()[0]
    assert "interrupted" == house.only(TurnEnded)[0].reason


async def test_an_interrupting_prompt_goes_before_those_that_wait(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "one")
        await until_state(house, SessionState.WORKING)
        await prompt(link, "later", when="idle")
        await prompt(link, "no, this", when="interrupt")
        await auntil(lambda: len(house.only(TurnStarted)) == 2)
        puppet.say(turn_ended())
        await auntil(lambda: len(puppet.prompts) == 3)

    assert ["one", "no, this", "later"] == puppet.prompts


async def test_an_interrupting_prompt_to_an_idle_agent_interrupts_nothing(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await prompt(await ready(house), "one", when="interrupt")

        assert not any(isinstance(wish, Interrupt) for wish in puppet.told)


async def test_a_turn_that_does_not_end_gets_no_second_prompt(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stubborn(wish: AgentCommand) -> None:
        if not isinstance(wish, Interrupt):
            puppet.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 0.05)
    puppet.on_wish = stubborn
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "one")
        await until_state(house, SessionState.WORKING)
        with pytest.raises(TimedOutError):
            await prompt(link, "no, this", when="interrupt")

        assert ["one"] == puppet.prompts


async def test_a_prompt_that_would_disturb_can_be_refused_instead(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        assert "submitted" == await prompt(link, "one", when="refuse")
        with pytest.raises(SessionBusyError) as refusal:
            await prompt(link, "two", when="refuse")

        assert "working" == refusal.value.state
        assert ["one"] == puppet.prompts
        assert [] == steps(house, 2)


async def test_of_two_refusable_prompts_at_once_one_goes(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        links = [await ready(house), await house.linked()]
        answers = await asyncio.gather(*(prompt(link, "go", when="refuse") for link in links), return_exceptions=True)

    assert ["go"] == puppet.prompts
    assert {"submitted", SessionBusyError} == {a if isinstance(a, str) else type(a) for a in answers}


@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_an_empty_prompt_is_no_prompt(house: House, puppet: Puppet, text: str) -> None:
    async with house.hosting(puppet):
        with pytest.raises(UsageError):
            await prompt(await ready(house), text)


async def test_a_prompt_that_the_agent_refuses_is_refused(house: House, puppet: Puppet) -> None:
    async def refuses(wish: AgentCommand) -> None:
        if isinstance(wish, Prompt):
            raise RefusedError("the agent has no credit left.")
        puppet.obey(wish)

    puppet.on_wish = refuses
    async with house.hosting(puppet):
        with pytest.raises(RefusedError, match="no credit left"):
            await prompt(await ready(house), "one")
        await auntil(lambda: steps(house)[-1:] == ["refused"])

    assert "the agent has no credit left." == house.session().receipts[0].reason


async def test_a_queued_prompt_that_the_agent_refuses_does_not_hold_up_the_next(house: House, puppet: Puppet) -> None:
    async def picky(wish: AgentCommand) -> None:
        if wish == Prompt(text="bad"):
            raise RefusedError("not that.")
        puppet.obey(wish)

    puppet.on_wish = picky
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "bad", "three"):
            await prompt(link, text, when="idle")
        puppet.say(turn_ended())
        await auntil(lambda: "three" in puppet.prompts)
        await auntil(lambda: ("bad", "refused") in house.receipts())


async def test_a_prompt_without_an_echo_is_neither_repeated_nor_said_to_be_there(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            await asyncio.Event().wait()
        puppet.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 1000.0)
    puppet.on_wish = hangs
    async with house.hosting(puppet, limits=Limits(call_s=0.05)):
        link = await ready(house)
        with pytest.raises(TimedOutError):
            await prompt(link, "one")
        assert "queued" == await prompt(link, "two", when="idle")
        assert {"typed"} == set(steps(house, 1))
        puppet.say(TurnStarted(at=time.time(), prompt="one"), turn_ended())
        await auntil(lambda: "two" in puppet.prompts)

    assert ["one", "two"] == puppet.prompts
    assert "finished" in steps(house, 1)


async def test_a_turn_may_begin_before_its_prompt_is_acknowledged(house: House, puppet: Puppet) -> None:
    async def slow(wish: AgentCommand) -> None:
        puppet.obey(wish)
        if isinstance(wish, Prompt):
            await asyncio.to_thread(until, lambda: house.only(TurnStarted), what="its turn in the log")

    puppet.on_wish = slow
    async with house.hosting(puppet):
        assert "started" == await prompt(await ready(house), "one")

        assert ["typed", "started"] == steps(house)


async def test_a_refused_prompt_makes_room_for_those_that_waited_behind_it(house: House, puppet: Puppet) -> None:
    gate = asyncio.Event()

    async def refuses_late(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            await gate.wait()
            raise RefusedError("not that.")
        puppet.obey(wish)

    puppet.on_wish = refuses_late
    async with house.hosting(puppet):
        link, other = await ready(house), await house.linked()
        first = asyncio.create_task(prompt(link, "one"))
        await auntil(lambda: puppet.prompts)
        assert "queued" == await prompt(other, "two", when="idle")
        gate.set()
        with pytest.raises(RefusedError):
            await first
        await auntil(lambda: puppet.prompts == ["one", "two"])


async def test_the_next_prompt_waits_until_the_turn_of_the_one_before_has_begun(house: House, puppet: Puppet) -> None:
    """Between taking a prompt and beginning its turn, an agent still looks idle."""

    async def slow(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            puppet.obey(wish)

    puppet.on_wish = slow
    async with house.hosting(puppet):
        link = await ready(house)
        assert "submitted" == await prompt(link, "one")
        assert "queued" == await prompt(link, "two", when="idle")
        puppet.say(TurnStarted(at=time.time(), prompt="one"))
        await until_state(house, SessionState.WORKING)
        assert ["one"] == puppet.prompts
        puppet.say(turn_ended())
        await auntil(lambda: puppet.prompts == ["one", "two"])


async def test_a_prompt_that_begins_no_turn_does_not_hold_up_the_queue(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slash command, say."""

    async def takes(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            puppet.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 0.05)
    puppet.on_wish = takes
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "/compact")
        await prompt(link, "two", when="idle")
        await auntil(lambda: puppet.prompts == ["/compact", "two"])


async def test_a_turn_of_the_agents_own_starts_no_prompt_of_ours(house: House, puppet: Puppet) -> None:
    async def takes(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            puppet.obey(wish)

    puppet.on_wish = takes
    async with house.hosting(puppet):
        await prompt(await ready(house), "one")
        puppet.say(TurnStarted(at=time.time(), by="agent"))
        await until_state(house, SessionState.WORKING)

        assert ["typed", "submitted"] == steps(house)


@pytest.mark.parametrize(
    ("reason", "error", "state", "why"),
    [
        ("error", "API Error: 529 overloaded", "failed", "API Error: 529 overloaded"),
        ("limit", "", "failed", prompts.LIMITED),
        ("interrupted", "", "finished", "interrupted"),
    ],
)
async def test_a_receipt_says_how_its_turn_ended(
    house: House, puppet: Puppet, reason: str, error: str, state: str, why: str
) -> None:
    async with house.hosting(puppet):
        await prompt(await ready(house), "one")
        puppet.say(turn_ended(reason, error))
        await auntil(lambda: state in steps(house))

    assert (why, "text") == (house.session().receipts[0].reason, house.session().receipts[0].carried_by)


async def test_a_turn_is_credited_to_the_prompt_with_all_of_its_text_and_to_no_other(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them begin alike; what the agent never names is not known to have been done."""
    monkeypatch.setattr(prompts, "BEGIN_S", 0.3)
    texts = ("look here\nfor one thing", "look here\nfor another")

    async def silent(wish: AgentCommand) -> None: ...

    puppet.on_wish = silent
    async with house.hosting(puppet):
        link = await ready(house)
        for text in texts:
            await prompt(link, text)
        puppet.say(TurnStarted(at=time.time(), prompt=texts[1]))
        await auntil(lambda: "started" in steps(house, 2))
        puppet.say(turn_ended())
        await auntil(lambda: "finished" in steps(house, 2))
        puppet.say(TurnStarted(at=time.time(), prompt="what somebody else said"), turn_ended())
        await auntil(lambda: "finished" in steps(house, 1) or "unsure" in steps(house, 1))

    assert [("unsure", ""), ("finished", "text")] == [(str(r.state), r.carried_by) for r in house.session().receipts]


async def test_a_prompt_that_began_no_turn_is_unsure_until_the_agent_names_it(
    house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "BEGIN_S", 0.1)

    async def silent(wish: AgentCommand) -> None: ...

    puppet.on_wish = silent
    async with house.hosting(puppet):
        await prompt(await ready(house), "one")
        await auntil(lambda: "unsure" in steps(house))
        assert NO_TURN == house.session().receipts[0].reason
        puppet.say(TurnStarted(at=time.time(), prompt="one"), turn_ended())
        await auntil(lambda: "finished" in steps(house))

    assert ["typed", "submitted", "unsure", "started", "finished"] == steps(house)


async def test_the_end_loses_what_waits(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "two"):
            await prompt(link, text, when="idle")
        puppet.say(SessionEnded(at=time.time(), exit_code=1))
        await auntil(lambda: house.only(SessionEnded))

    assert [("one", "lost"), ("two", "lost")] == house.receipts()


async def test_a_full_queue_takes_no_more(house: House, puppet: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "QUEUE", 2)
    async with house.hosting(puppet):
        link = await ready(house)
        for text in ("one", "two", "three"):
            await prompt(link, text, when="idle")
        with pytest.raises(RefusedError, match="already has"):
            await prompt(link, "four", when="idle")


async def test_a_long_queue_keeps_its_order_and_its_prompts(house: House, puppet: Puppet) -> None:
    """More than the session keeps receipts of."""
    texts = [f"prompt {n}\nwith a second line" for n in range(30)]

    async def quick(wish: AgentCommand) -> None:
        puppet.obey(wish)
        if isinstance(wish, Prompt) and wish.text != "first":
            puppet.say(turn_ended())

    puppet.on_wish = quick
    async with house.hosting(puppet):
        link = await ready(house)
        await prompt(link, "first")
        for text in texts:
            await prompt(link, text, when="idle")
        puppet.say(turn_ended())
        await auntil(lambda: len(puppet.prompts) == 31)

    assert ["first", *texts] == puppet.prompts


async def test_a_receipt_shows_the_first_line_of_its_prompt_cleaned(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        await prompt(await ready(house), "\n\x1b]52;c;aGk=\x07tidy\tup\nand more")

    assert "tidy up" == house.session().receipts[0].text


async def waiting(house: House, puppet: Puppet, *texts: str) -> HostLink:
    """An agent in a turn, with *texts* waiting."""
    link = await ready(house)
    await prompt(link, "first")
    await until_state(house, SessionState.WORKING)
    for text in texts:
        assert "queued" == await prompt(link, text, when="idle")
    return link


def queued(house: House) -> list[str]:
    return [text for text, state in house.receipts() if state == "queued"]


async def requeue(link: HostLink, n: int, **change: Any) -> None:
    await do(link, Requeue(receipt=ReceiptId(f"{ME}-r{n}"), **change))


async def test_what_waits_can_be_put_into_another_order(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await waiting(house, puppet, "one", "two", "three")
        await requeue(link, 4, place=0)
        assert ["three", "one", "two"] == queued(house)
        await requeue(link, 2, place=9)
        assert ["three", "two", "one"] == queued(house)
        for count in (2, 3, 4):
            puppet.say(turn_ended())
            await auntil(lambda count=count: len(puppet.prompts) == count)  # type: ignore[misc]
            await until_state(house, SessionState.WORKING)

    assert ["first", "three", "two", "one"] == puppet.prompts


async def test_what_waits_can_be_changed_and_taken_back(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await waiting(house, puppet, "one", "two")
        await requeue(link, 2, text="better\nand longer")
        await requeue(link, 3, drop=True)
        assert ["better"] == queued(house)
        puppet.say(turn_ended())
        await auntil(lambda: len(puppet.prompts) == 2)

    assert "better\nand longer" == puppet.prompts[-1]
    assert [("two", "refused")] == [receipt for receipt in house.receipts() if receipt[0] == "two"]


async def test_a_changed_queue_survives_its_host(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await waiting(house, puppet, "one", "two")
        await requeue(link, 3, place=0, text="zwei")
        after = await asyncio.to_thread(SessionLog, house.places, ME)

    waits = [receipt.id for receipt in after.session.receipts if receipt.state is ReceiptState.QUEUED]
    assert ["zwei", "one"] == [after.prompts[receipt].prompt for receipt in waits]


async def test_what_waits_no_more_cannot_be_changed(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await waiting(house, puppet, "one")
        with pytest.raises(RefusedError, match="is no longer queued"):
            await requeue(link, 1, text="other")
        with pytest.raises(NotFoundError, match="r9"):
            await requeue(link, 9, drop=True)
        with pytest.raises(UsageError, match="must not be empty"):
            await requeue(link, 2, text="  ")

        assert ["one"] == queued(house)


async def test_an_agent_that_cannot_be_steered_gets_a_prompt_after_its_turn(house: House, puppet: Puppet) -> None:
    puppet.abilities = msgspec.structs.replace(ABLE, steers=False)
    async with house.hosting(puppet):
        link = await waiting(house, puppet)
        assert "queued" == await prompt(link, "now, please", when="now")
        assert ["first"] == puppet.prompts
        assert "accepts nothing during a turn" in house.session().receipts[-1].reason
        puppet.say(turn_ended())
        await auntil(lambda: len(puppet.prompts) == 2)


async def test_an_agent_that_can_be_steered_gets_it_at_once(house: House, puppet: Puppet) -> None:
    async with house.hosting(puppet):
        link = await waiting(house, puppet)

        assert "submitted" == await prompt(link, "now, please", when="now")
        assert ["first", "now, please"] == puppet.prompts
