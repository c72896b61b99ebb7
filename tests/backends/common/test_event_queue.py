"""What an agent says reaches the host in its order, and all of it; a host that takes nothing is not flooded."""

import asyncio

from kasmon.backends.common.structured_agent import FULL, EventQueue
from kasmon.model.events import NoticeRaised, SessionEnded


async def test_while_the_host_reads_nothing_the_queue_is_full() -> None:
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


async def test_events_before_the_introduction_come_after_it() -> None:
    outbox = EventQueue()
    outbox.put([NoticeRaised(at=0.0, text="early")])
    outbox.start([NoticeRaised(at=0.0, text="first")])
    outbox.put([SessionEnded(at=0.0), NoticeRaised(at=0.0, text="late")])

    assert ["first", "early", ""] == [getattr(said, "text", "") async for said in outbox.read()]
    assert [] == [said async for said in outbox.read()]


async def test_an_agent_that_ends_before_its_introduction_reports_its_events() -> None:
    outbox = EventQueue()
    outbox.put([NoticeRaised(at=0.0, text="early"), SessionEnded(at=0.0, why="gone")])
    outbox.start([NoticeRaised(at=0.0, text="first")])

    assert ["first", "early", "gone"] == [getattr(said, "text", "") or said.why async for said in outbox.read()]  # type: ignore[union-attr]


async def test_a_writer_that_waits_for_space_continues_once_it_is_over() -> None:
    outbox = EventQueue()
    outbox.start(NoticeRaised(at=0.0, text=str(number)) for number in range(FULL))
    waiting = asyncio.create_task(outbox.wait_for_space())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put([SessionEnded(at=0.0)])

    await waiting
