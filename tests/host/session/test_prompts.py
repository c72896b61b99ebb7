"""What becomes of a prompt: which goes at once, which waits, and the receipt of each."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import psutil
import pytest

from kasmon.config import Limits
from kasmon.errors import NotFoundError, RefusedError, SessionBusyError, TimedOutError, UsageError
from kasmon.host.journal.session_log import SessionLog
from kasmon.host.rpc.client import HostLink
from kasmon.host.session import prompts
from kasmon.model.commands import (
    NO_TURN,
    AgentCommand,
    Interrupt,
    Prompt,
    ReceiptId,
    ReceiptState,
    Requeue,
    prompt_digest,
)
from kasmon.model.events import (
    LimitReached,
    ReceiptChanged,
    SessionCreated,
    SessionEnded,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from tests.host.journal.test_session_log import FullDisk
from tests.support.agents.fake_agent import ABLE, FakeAgent
from tests.support.host.env import ME, Env, do, prompt
from tests.support.wait import auntil, until


def turn_ended(reason: str = "done", error: str = "") -> TurnEnded:
    return TurnEnded(at=time.time(), reason=reason, error=error)  # type: ignore[arg-type]


def steps(env: Env, n: int = 1) -> list[str]:
    """The steps of the n-th receipt."""
    return [str(m.receipt.state) for m in env.only(ReceiptChanged) if m.receipt.id.endswith(f"-r{n}")]


async def ready(env: Env) -> HostLink:
    await auntil(lambda: env.only(SessionStarted))
    return await env.linked()


async def until_state(env: Env, state: SessionState) -> None:
    await auntil(lambda: env.session().state is state, what=f"the state {state}")


async def test_an_idle_agent_gets_a_prompt_at_once(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        assert "submitted" == await prompt(await ready(env), "tidy up", when="idle")
        await until_state(env, SessionState.WORKING)
        fake.say(turn_ended())
        await until_state(env, SessionState.IDLE)
        await auntil(lambda: "finished" in steps(env))

    assert ["typed", "submitted", "started", "finished"] == steps(env)
    assert [Prompt(text="tidy up", when="now")] == [wish for wish in fake.told if isinstance(wish, Prompt)]


async def test_a_receipt_names_the_origin_of_its_prompt_to_its_end(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        await do(link, Prompt(text="tidy up", by="peer"))
        await until_state(env, SessionState.WORKING)
        await do(link, Prompt(text="and then", when="idle", by="wave"))
        fake.say(turn_ended())
        await auntil(lambda: len(fake.prompts) == 2)

    assert {("r1", "peer"), ("r2", "wave")} == {
        (moved.receipt.id.rpartition("-")[2], moved.receipt.by) for moved in env.only(ReceiptChanged)
    }


async def test_a_prompt_that_is_repeated_with_its_key_is_accepted_once(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        first = (await do(link, Prompt(text="tidy up", by="peer", key="p1.a.1"))).receipt
        again = (await do(link, Prompt(text="tidy up", by="peer", key="p1.a.1"))).receipt
        assert first is not None
        assert again is not None
        assert (first.id, "p1.a.1") == (again.id, again.key)
        await do(link, Prompt(text="tidy up", by="peer", key="p1.a.2"))
        await do(link, Prompt(text="tidy up", by="peer"))
        await do(link, Prompt(text="tidy up", by="peer"))
    after = await asyncio.to_thread(SessionLog, env.paths, ME)

    assert ["p1.a.1", "p1.a.2", "", ""] == [receipt.key for receipt in after.session.receipts], "the next host knows"
    assert 4 == len({moved.receipt.id for moved in env.only(ReceiptChanged)})


async def test_prompts_for_an_idle_agent_wait_for_the_end_of_each_turn_in_order(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        states = [await prompt(link, text, when="idle") for text in ("one", "two", "three")]
        assert ["submitted", "queued", "queued"] == states
        for count in (1, 2, 3):
            await auntil(lambda count=count: len(fake.prompts) == count)  # type: ignore[misc]
            await auntil(lambda count=count: 3 - count == env.session().queue)  # type: ignore[misc]
            await until_state(env, SessionState.WORKING)
            fake.say(turn_ended())
        await auntil(lambda: [("one", "finished"), ("two", "finished"), ("three", "finished")] == env.receipts())

    assert ["one", "two", "three"] == fake.prompts
    assert ["queued", "typed", "submitted", "started", "finished"] == steps(env, 2)


async def test_a_prompt_with_now_joins_the_running_turn(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "one")
        await until_state(env, SessionState.WORKING)
        assert "submitted" == await prompt(link, "and also", when="now")

        assert ["one", "and also"] == fake.prompts


async def test_a_prompt_that_joined_another_turn_without_an_echo_is_unsure(env: Env, fake: FakeAgent) -> None:
    async def steered(wish: AgentCommand) -> None:
        if wish != Prompt(text="and also"):
            fake.obey(wish)

    fake.on_wish = steered
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "and also"):
            await prompt(link, text)
            await until_state(env, SessionState.WORKING)
        fake.say(turn_ended())
        await until_state(env, SessionState.IDLE)
        await prompt(link, "two")
        fake.say(turn_ended())
        await auntil(lambda: ["finished", "unsure", "finished"] == [state for _, state in env.receipts()])


async def test_a_prompt_that_waits_within_the_agent_is_not_reported_as_finished(env: Env, fake: FakeAgent) -> None:
    """It keeps what comes into a turn, and takes a turn for each: the third waits through the ends of two."""

    async def keeps(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            fake.obey(wish)

    fake.on_wish = keeps
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "two", "three"):
            await prompt(link, text)
            await until_state(env, SessionState.WORKING)
        fake.say(turn_ended(), TurnStarted(at=time.time(), prompt="two"), turn_ended())
        await auntil(lambda: [("one", "finished"), ("two", "finished"), ("three", "submitted")] == env.receipts())
        await prompt(link, "first of all", when="interrupt")
        fake.say(TurnStarted(at=time.time(), prompt="first of all"), turn_ended())
        await auntil(lambda: ("first of all", "finished") in env.receipts())

        assert ("three", "submitted") in env.receipts()


@pytest.mark.parametrize("when", ["now", "interrupt"])
async def test_an_agent_whose_turn_ended_at_its_limit_can_be_prompted_again(
    env: Env, fake: FakeAgent, when: str
) -> None:
    """Nobody may ever tell that the limit is over, and there is no turn to wait for, nor one to end."""
    fake.abilities = msgspec.structs.replace(ABLE, steers=False)
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "one")
        fake.say(LimitReached(at=time.time()), turn_ended("limit"))
        await auntil(lambda: env.only(TurnEnded))
        await until_state(env, SessionState.LIMITED)
        assert "submitted" == await prompt(link, "two", when=when)
        await until_state(env, SessionState.WORKING)

    assert ["one", "two"] == fake.prompts
    assert not any(isinstance(wish, Interrupt) for wish in fake.told)


async def test_a_prompt_that_the_agent_dropped_is_lost(env: Env, fake: FakeAgent) -> None:
    async def forgets(wish: AgentCommand) -> None:
        if wish != Prompt(text="and also\nthis"):
            fake.obey(wish)

    fake.on_wish = forgets
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "and also\nthis"):
            await prompt(link, text)
            await until_state(env, SessionState.WORKING)
        fake.say(TurnEnded(at=time.time(), reason="interrupted", dropped=("and also\nthis",)))
        await auntil(lambda: [("one", "finished"), ("and also", "lost")] == env.receipts())

    assert "the turn ended before the agent had accepted it" == env.session().receipts[1].reason


async def test_an_interrupting_prompt_ends_the_turn_first(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "one")
        await until_state(env, SessionState.WORKING)
        assert "submitted" == await prompt(link, "no, this", when="interrupt")
        await auntil(lambda: len(env.only(TurnStarted)) == 2)

    assert [Prompt, Interrupt, Prompt] == [type(wish) for wish in fake.told[:3]]
    assert ("one", "finished") == env.receipts()[0]
    assert "interrupted" == env.only(TurnEnded)[0].reason


async def test_an_interrupting_prompt_goes_before_the_queue(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "one")
        await until_state(env, SessionState.WORKING)
        await prompt(link, "later", when="idle")
        await prompt(link, "no, this", when="interrupt")
        await auntil(lambda: len(env.only(TurnStarted)) == 2)
        fake.say(turn_ended())
        await auntil(lambda: len(fake.prompts) == 3)

    assert ["one", "no, this", "later"] == fake.prompts


async def test_an_interrupting_prompt_to_an_idle_agent_interrupts_nothing(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await prompt(await ready(env), "one", when="interrupt")

        assert not any(isinstance(wish, Interrupt) for wish in fake.told)


async def test_a_turn_that_does_not_end_gets_no_second_prompt(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stubborn(wish: AgentCommand) -> None:
        if not isinstance(wish, Interrupt):
            fake.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 0.05)
    fake.on_wish = stubborn
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "one")
        await until_state(env, SessionState.WORKING)
        with pytest.raises(TimedOutError):
            await prompt(link, "no, this", when="interrupt")

        assert ["one"] == fake.prompts


async def test_a_prompt_that_would_disturb_can_be_refused_instead(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        assert "submitted" == await prompt(link, "one", when="refuse")
        with pytest.raises(SessionBusyError) as refusal:
            await prompt(link, "two", when="refuse")

        assert "working" == refusal.value.state
        assert ["one"] == fake.prompts
        assert [] == steps(env, 2)


async def test_one_of_two_refusable_prompts_at_once_is_accepted(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        links = [await ready(env), await env.linked()]
        answers = await asyncio.gather(*(prompt(link, "go", when="refuse") for link in links), return_exceptions=True)

    assert ["go"] == fake.prompts
    assert {"submitted", SessionBusyError} == {a if isinstance(a, str) else type(a) for a in answers}


@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_an_empty_prompt_is_refused(env: Env, fake: FakeAgent, text: str) -> None:
    async with env.hosting(fake):
        with pytest.raises(UsageError):
            await prompt(await ready(env), text)


async def test_a_prompt_that_the_agent_refuses_is_refused(env: Env, fake: FakeAgent) -> None:
    async def refuses(wish: AgentCommand) -> None:
        if isinstance(wish, Prompt):
            raise RefusedError("the agent has no credit left.")
        fake.obey(wish)

    fake.on_wish = refuses
    async with env.hosting(fake):
        with pytest.raises(RefusedError, match="no credit left"):
            await prompt(await ready(env), "one")
        await auntil(lambda: steps(env)[-1:] == ["refused"])

    assert "the agent has no credit left." == env.session().receipts[0].reason


async def test_a_queued_prompt_that_the_agent_refuses_does_not_block_the_next(env: Env, fake: FakeAgent) -> None:
    async def picky(wish: AgentCommand) -> None:
        if wish == Prompt(text="bad"):
            raise RefusedError("not that.")
        fake.obey(wish)

    fake.on_wish = picky
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "bad", "three"):
            await prompt(link, text, when="idle")
        fake.say(turn_ended())
        await auntil(lambda: "three" in fake.prompts)
        await auntil(lambda: ("bad", "refused") in env.receipts())


async def test_a_prompt_without_an_echo_is_neither_repeated_nor_reported_as_accepted(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            await asyncio.Event().wait()
        fake.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 1000.0)
    fake.on_wish = hangs
    async with env.hosting(fake, limits=Limits(call_s=0.05)):
        link = await ready(env)
        with pytest.raises(TimedOutError):
            await prompt(link, "one")
        assert "queued" == await prompt(link, "two", when="idle")
        assert {"typed"} == set(steps(env, 1))
        fake.say(TurnStarted(at=time.time(), prompt="one"), turn_ended())
        await auntil(lambda: "two" in fake.prompts)

    assert ["one", "two"] == fake.prompts
    assert "finished" in steps(env, 1)


async def test_a_turn_may_begin_before_its_prompt_is_acknowledged(env: Env, fake: FakeAgent) -> None:
    async def slow(wish: AgentCommand) -> None:
        fake.obey(wish)
        if isinstance(wish, Prompt):
            await asyncio.to_thread(until, lambda: env.only(TurnStarted), what="its turn in the log")

    fake.on_wish = slow
    async with env.hosting(fake):
        assert "started" == await prompt(await ready(env), "one")

        assert ["typed", "started"] == steps(env)


async def test_a_refused_prompt_lets_the_next_ones_proceed(env: Env, fake: FakeAgent) -> None:
    gate = asyncio.Event()

    async def refuses_late(wish: AgentCommand) -> None:
        if wish == Prompt(text="one"):
            await gate.wait()
            raise RefusedError("not that.")
        fake.obey(wish)

    fake.on_wish = refuses_late
    async with env.hosting(fake):
        link, other = await ready(env), await env.linked()
        first = asyncio.create_task(prompt(link, "one"))
        await auntil(lambda: fake.prompts)
        assert "queued" == await prompt(other, "two", when="idle")
        gate.set()
        with pytest.raises(RefusedError):
            await first
        await auntil(lambda: fake.prompts == ["one", "two"])


async def test_the_next_prompt_waits_until_the_turn_of_the_one_before_has_begun(env: Env, fake: FakeAgent) -> None:
    """Between taking a prompt and beginning its turn, an agent still looks idle."""

    async def slow(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            fake.obey(wish)

    fake.on_wish = slow
    async with env.hosting(fake):
        link = await ready(env)
        assert "submitted" == await prompt(link, "one")
        assert "queued" == await prompt(link, "two", when="idle")
        fake.say(TurnStarted(at=time.time(), prompt="one"))
        await until_state(env, SessionState.WORKING)
        assert ["one"] == fake.prompts
        fake.say(turn_ended())
        await auntil(lambda: fake.prompts == ["one", "two"])


async def test_a_prompt_that_starts_no_turn_does_not_block_the_queue(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slash command, say."""

    async def takes(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            fake.obey(wish)

    monkeypatch.setattr(prompts, "BEGIN_S", 0.05)
    fake.on_wish = takes
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "/compact")
        await prompt(link, "two", when="idle")
        await auntil(lambda: fake.prompts == ["/compact", "two"])


async def test_a_turn_that_the_agent_started_itself_sends_no_prompt(env: Env, fake: FakeAgent) -> None:
    async def takes(wish: AgentCommand) -> None:
        if not isinstance(wish, Prompt):
            fake.obey(wish)

    fake.on_wish = takes
    async with env.hosting(fake):
        await prompt(await ready(env), "one")
        fake.say(TurnStarted(at=time.time(), by="agent"))
        await until_state(env, SessionState.WORKING)

        assert ["typed", "submitted"] == steps(env)


@pytest.mark.parametrize(
    ("reason", "error", "state", "why"),
    [
        ("error", "API Error: 529 overloaded", "failed", "API Error: 529 overloaded"),
        ("limit", "", "failed", prompts.LIMITED),
        ("interrupted", "", "finished", "interrupted"),
    ],
)
async def test_a_receipt_has_the_outcome_of_its_turn(
    env: Env, fake: FakeAgent, reason: str, error: str, state: str, why: str
) -> None:
    async with env.hosting(fake):
        await prompt(await ready(env), "one")
        fake.say(turn_ended(reason, error))
        await auntil(lambda: state in steps(env))

    assert (why, "text") == (env.session().receipts[0].reason, env.session().receipts[0].carried_by)


async def test_a_turn_belongs_to_the_prompt_with_all_of_its_text_and_to_no_other(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them begin alike; what the agent never names is not known to have been done."""
    monkeypatch.setattr(prompts, "BEGIN_S", 0.3)
    texts = ("look here\nfor one thing", "look here\nfor another")

    async def silent(wish: AgentCommand) -> None: ...

    fake.on_wish = silent
    async with env.hosting(fake):
        link = await ready(env)
        for text in texts:
            await prompt(link, text)
        fake.say(TurnStarted(at=time.time(), prompt=texts[1]))
        await auntil(lambda: "started" in steps(env, 2))
        fake.say(turn_ended())
        await auntil(lambda: "finished" in steps(env, 2))
        fake.say(TurnStarted(at=time.time(), prompt="what somebody else said"), turn_ended())
        await auntil(lambda: "finished" in steps(env, 1) or "unsure" in steps(env, 1))

    assert [("unsure", ""), ("finished", "text")] == [(str(r.state), r.carried_by) for r in env.session().receipts]


async def test_a_turn_with_another_text_belongs_to_the_prompt_that_it_contains(env: Env, fake: FakeAgent) -> None:
    async def silent(wish: AgentCommand) -> None: ...

    fake.on_wish = silent
    async with env.hosting(fake):
        await prompt(await ready(env), "prompt Fix it\nsay done")
        digest = prompt_digest("prompt Fix it\nsay done")
        fake.say(TurnStarted(at=time.time(), prompt="Fix it", digest=digest), turn_ended())
        await auntil(lambda: "finished" in steps(env))

    assert "text" == env.session().receipts[0].carried_by


async def test_a_prompt_that_started_no_turn_is_unsure_until_the_agent_names_it(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "BEGIN_S", 0.1)

    async def silent(wish: AgentCommand) -> None: ...

    fake.on_wish = silent
    async with env.hosting(fake):
        await prompt(await ready(env), "one")
        await auntil(lambda: "unsure" in steps(env))
        assert NO_TURN == env.session().receipts[0].reason
        fake.say(TurnStarted(at=time.time(), prompt="one"), turn_ended())
        await auntil(lambda: "finished" in steps(env))

    assert ["typed", "submitted", "unsure", "started", "finished"] == steps(env)


async def test_the_end_of_a_session_loses_its_queue(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "two"):
            await prompt(link, text, when="idle")
        fake.say(SessionEnded(at=time.time(), exit_code=1))
        await auntil(lambda: env.only(SessionEnded))

    assert [("one", "lost"), ("two", "lost")] == env.receipts()


async def test_a_full_queue_accepts_no_more(env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "QUEUE", 2)
    async with env.hosting(fake):
        link = await ready(env)
        for text in ("one", "two", "three"):
            await prompt(link, text, when="idle")
        with pytest.raises(RefusedError, match="already has"):
            await prompt(link, "four", when="idle")


async def test_a_long_queue_keeps_its_order_and_its_prompts(env: Env, fake: FakeAgent) -> None:
    """More than the session keeps receipts of."""
    texts = [f"prompt {n}\nwith a second line" for n in range(30)]

    async def quick(wish: AgentCommand) -> None:
        fake.obey(wish)
        if isinstance(wish, Prompt) and wish.text != "first":
            fake.say(turn_ended())

    fake.on_wish = quick
    async with env.hosting(fake):
        link = await ready(env)
        await prompt(link, "first")
        for text in texts:
            await prompt(link, text, when="idle")
        fake.say(turn_ended())
        await auntil(lambda: len(fake.prompts) == 31)

    assert ["first", *texts] == fake.prompts


async def test_a_receipt_shows_the_first_line_of_its_prompt_cleaned(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        await prompt(await ready(env), "\n\x1b]52;c;aGk=\x07tidy\tup\nand more")

    assert "tidy up" == env.session().receipts[0].text


async def waiting(env: Env, fake: FakeAgent, *texts: str) -> HostLink:
    """An agent in a turn, with *texts* waiting."""
    link = await ready(env)
    await prompt(link, "first")
    await until_state(env, SessionState.WORKING)
    for text in texts:
        assert "queued" == await prompt(link, text, when="idle")
    return link


def queued(env: Env) -> list[str]:
    return [text for text, state in env.receipts() if state == "queued"]


async def requeue(link: HostLink, n: int, **change: Any) -> None:
    await do(link, Requeue(receipt=ReceiptId(f"{ME}-r{n}"), **change))


async def test_queued_prompts_can_be_reordered(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await waiting(env, fake, "one", "two", "three")
        await requeue(link, 4, place=0)
        assert ["three", "one", "two"] == queued(env)
        await requeue(link, 2, place=9)
        assert ["three", "two", "one"] == queued(env)
        for count in (2, 3, 4):
            fake.say(turn_ended())
            await auntil(lambda count=count: len(fake.prompts) == count)  # type: ignore[misc]
            await until_state(env, SessionState.WORKING)

    assert ["first", "three", "two", "one"] == fake.prompts


async def test_queued_prompts_can_be_edited_and_withdrawn(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await waiting(env, fake, "one", "two")
        await requeue(link, 2, text="better\nand longer")
        await requeue(link, 3, drop=True)
        assert ["better"] == queued(env)
        fake.say(turn_ended())
        await auntil(lambda: len(fake.prompts) == 2)

    assert "better\nand longer" == fake.prompts[-1]
    assert [("two", "refused")] == [receipt for receipt in env.receipts() if receipt[0] == "two"]


async def test_a_changed_queue_survives_its_host(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await waiting(env, fake, "one", "two")
        await requeue(link, 3, place=0, text="zwei")
        after = await asyncio.to_thread(SessionLog, env.paths, ME)

    waits = [receipt.id for receipt in after.session.receipts if receipt.state is ReceiptState.QUEUED]
    assert ["zwei", "one"] == [after.prompts[receipt].prompt for receipt in waits]


async def test_a_prompt_that_left_the_queue_cannot_be_edited(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await waiting(env, fake, "one")
        with pytest.raises(RefusedError, match="is no longer queued"):
            await requeue(link, 1, text="other")
        with pytest.raises(NotFoundError, match="r9"):
            await requeue(link, 9, drop=True)
        with pytest.raises(UsageError, match="must not be empty"):
            await requeue(link, 2, text="  ")

        assert ["one"] == queued(env)


async def test_an_agent_that_cannot_be_steered_gets_a_prompt_after_its_turn(env: Env, fake: FakeAgent) -> None:
    fake.abilities = msgspec.structs.replace(ABLE, steers=False)
    async with env.hosting(fake):
        link = await waiting(env, fake)
        assert "queued" == await prompt(link, "now, please", when="now")
        assert ["first"] == fake.prompts
        assert "accepts nothing during a turn" in env.session().receipts[-1].reason
        fake.say(turn_ended())
        await auntil(lambda: len(fake.prompts) == 2)


async def test_an_agent_that_can_be_steered_gets_it_at_once(env: Env, fake: FakeAgent) -> None:
    async with env.hosting(fake):
        link = await waiting(env, fake)

        assert "submitted" == await prompt(link, "now, please", when="now")
        assert ["first", "now, please"] == fake.prompts


async def test_a_prompt_that_comes_while_a_budget_is_checked_keeps_the_queued_one_waiting(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check takes a while, and an agent that just took a prompt still looks idle."""
    checks = await checked(env, monkeypatch)

    async def takes(wish: AgentCommand) -> None:
        """It begins no turn."""

    async with env.hosting(fake) as host:
        link = await waiting(env, fake, "queued")
        fake.on_wish = takes
        fake.say(turn_ended())
        check = await checks()
        assert "submitted" == await prompt(link, "now")
        gate, checked_at = host._agent.prompts._budget_gate, host._agent.prompts._budget_gate._held_at
        check.resume()
        await auntil(lambda: gate._held_at > checked_at)
        assert "queued" == await prompt(link, "behind", when="idle")
        fake.say(TurnStarted(at=time.time(), prompt="now"))
        await until_state(env, SessionState.WORKING)
        assert ["first", "now"] == fake.prompts
        fake.say(turn_ended())
        (await checks()).resume()
        await auntil(lambda: fake.prompts[:3] == ["first", "now", "queued"])


async def test_a_host_that_hands_over_during_a_budget_check_delivers_nothing_more(
    env: Env, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = await checked(env, monkeypatch)
    async with env.hosting(fake) as host:
        await waiting(env, fake, "queued")
        fake.say(turn_ended())
        check = await checks()
        await host._agent.prompts.rest()
        gate, checked_at = host._agent.prompts._budget_gate, host._agent.prompts._budget_gate._held_at
        check.resume()
        await auntil(lambda: gate._held_at > checked_at)
        assert "queued" == await prompt(await env.linked(), "behind", when="idle")
        assert ["queued", "behind"] == queued(env)

    assert ["first"] == fake.prompts


async def test_a_queued_prompt_is_delivered_once_its_delivery_is_in_the_log(env: Env, fake: FakeAgent) -> None:
    """If its host died, the next one would deliver it again."""
    disk = FullDisk(env.paths.log(ME))
    async with env.hosting(fake):
        link = await waiting(env, fake, "queued")
        await asyncio.to_thread(disk.fill)
        fake.say(turn_ended())
        assert "queued" == await prompt(link, "behind", when="idle")
        assert "submitted" == await prompt(link, "live control is not blocked", when="now")
        assert ["first", "live control is not blocked"] == fake.prompts
        await asyncio.to_thread(disk.free)
        await auntil(lambda: SessionState.WORKING is env.session().state)
        fake.say(turn_ended())
        await auntil(lambda: fake.prompts[2:] == ["queued"])


async def checked(env: Env, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[psutil.Process]]:
    """A budget, in a fleet that has the session; what is returned waits for a check of it, and stops its process."""
    for name in [name for name in os.environ if name.startswith(("XDG_", "KASM"))]:
        monkeypatch.delenv(name)
    for name, value in env.environment.items():
        monkeypatch.setenv(name, value)
    env.paths.config.mkdir(mode=0o700, exist_ok=True)
    env.paths.config_file.write_text('[budget]\nper_session = "1M"\n')
    launch = env.wants(backend="fake")
    await asyncio.to_thread(
        EventLog(env.paths.fleet_log).append, SessionCreated(at=time.time(), launch=launch, machine="here")
    )

    def find() -> psutil.Process | None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE and child.cmdline()[-4:-2] == ["limits", "check"]:
                    child.suspend()
                    return child
        return None

    async def stopped() -> psutil.Process:
        found: list[psutil.Process] = []

        def is_found() -> bool:
            found.extend(filter(None, [find()]))
            return bool(found)

        await asyncio.to_thread(until, is_found, what="a budget's check")
        return found[0]

    return stopped
