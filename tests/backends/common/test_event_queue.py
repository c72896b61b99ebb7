"""What an agent says reaches the host in its order, and all of it; a host that takes nothing is not flooded."""

import asyncio

from kasmon.backends.common.structured_agent import FULL, EventQueue
from kasmon.model.events import NoticeRaised, SessionEnded


async def test_while_the_host_takes_nothing_there_is_no_room() -> None:
    outbox = EventQueue()
    outbox.start([NoticeRaised(at=0.0, text="first")])
    outbox.put(NoticeRaised(at=0.0, text=str(number)) for number in range(FULL))
    waiting = asyncio.create_task(outbox.wait_for_space())
    await asyncio.sleep(0)
    assert not waiting.done()
    taken = outbox.read()
    told = [await anext(taken), await anext(taken)]
    await waiting

    assert ["first", "0"] == [notice.text for notice in told]  # type: ignore[union-attr]


async def test_what_was_said_before_the_introduction_comes_after_it() -> None:
    outbox = EventQueue()
    outbox.put([NoticeRaised(at=0.0, text="early")])
    outbox.start([NoticeRaised(at=0.0, text="first")])
    outbox.put([SessionEnded(at=0.0), NoticeRaised(at=0.0, text="late")])

    assert ["first", "early", ""] == [getattr(said, "text", "") async for said in outbox.read()]
    assert [] == [said async for said in outbox.read()]


async def test_one_that_ended_before_its_introduction_was_heard_says_all_of_that() -> None:
    outbox = EventQueue()
    outbox.put([NoticeRaised(at=0.0, text="early"), SessionEnded(at=0.0, why="gone")])
    outbox.start([NoticeRaised(at=0.0, text="first")])

    assert ["first", "early", "gone"] == [getattr(said, "text", "") or said.why async for said in outbox.read()]  # type: ignore[union-attr]


async def test_whoever_waits_for_room_goes_on_once_it_is_over() -> None:
    outbox = EventQueue()
    outbox.start(NoticeRaised(at=0.0, text=str(number)) for number in range(FULL))
    waiting = asyncio.create_task(outbox.wait_for_space())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put([SessionEnded(at=0.0)])

    await waiting
