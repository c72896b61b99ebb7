"""A session's log on its way to the screen: the end of a long one first, then all of it, then what is added."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from kasmon.model.events import Event, MessageWritten, NoticeRaised, SessionStarted, encode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor, EventLog
from kasmon.tui.gateway import log_tail
from kasmon.tui.gateway.log_tail import follow
from kasmon.tui.gateway.protocol import EventBatch, TranscriptUpdate
from kasmon.tui.transcript.cache import SessionTranscript

S = SessionId("abcdefgh")


class OneLog:
    """Where one session's log is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, session: SessionId) -> Path:
        return self.path


def written(path: Path, events: list[Event]) -> Paths:
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return cast(Paths, OneLog(path))


async def heard(paths: Paths, until: int, since: Cursor = START) -> list[TranscriptUpdate]:
    """What is heard until so many facts came in order."""
    told: list[TranscriptUpdate] = []
    count = 0
    async for each in follow(paths, None, S, since):
        told.append(each)
        count += len(each.events) if isinstance(each, EventBatch) and not each.is_end else 0
        if count >= until:
            return told
    return told


@pytest.fixture
def session_view() -> list[Event]:
    said = [MessageWritten(at=1.0, text=f"message {number} " + "x" * 500) for number in range(6000)]
    return [SessionStarted(at=0.0), *said]


async def test_the_end_of_a_long_log_is_read_first_and_then_all_of_it(
    tmp_path: Path, session_view: list[Event]
) -> None:
    told = await heard(written(tmp_path / "log", session_view), len(session_view))

    end, *pieces = told
    assert isinstance(end, EventBatch)
    assert end.is_end
    assert session_view[-1] == end.events[-1]
    assert 0 < len(end.events) <= log_tail.END_BYTES // 500
    facts = [each for each in pieces if isinstance(each, EventBatch)]
    assert session_view == [event for each in facts for event in each.events]
    assert [True] * (len(facts) - 1) + [False] == [each.more for each in facts]
    assert all(len(each.events) <= log_tail.AT_ONCE for each in facts)


async def test_a_short_log_is_read_at_once(tmp_path: Path, session_view: list[Event]) -> None:
    told = await heard(written(tmp_path / "log", session_view[:100]), 100)

    assert [(100, False, False)] == [
        (len(each.events), each.more, each.is_end) for each in told if isinstance(each, EventBatch)
    ]


async def test_a_reader_with_the_log_gets_only_new_events(tmp_path: Path, session_view: list[Event]) -> None:
    new = NoticeRaised(at=2.0, text="new")
    known = Cursor(sum(len(encode(event)) + 1 for event in session_view))

    told = await heard(written(tmp_path / "log", [*session_view, new]), 1, known)
    assert [(new,)] == [each.events for each in told if isinstance(each, EventBatch)]


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not report changes of one file: a timer checks it"
)
async def test_each_addition_is_read_when_the_system_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a log that is created later, and of one that is replaced, as where a session is restored."""
    monkeypatch.setattr(log_tail, "LOOK_S", 600.0)
    path = tmp_path / "log"
    heard: list[Event] = []

    async def hear(updates: AsyncIterator[TranscriptUpdate], event: Event) -> None:
        async with asyncio.timeout(30):
            while event not in heard:
                batch = await anext(updates)
                assert isinstance(batch, EventBatch)
                heard.extend(batch.events)

    first, *events = [NoticeRaised(at=float(number), text=str(number)) for number in range(6)]
    async with contextlib.aclosing(
        cast(AsyncGenerator[TranscriptUpdate], follow(cast(Paths, OneLog(path)), None, S, START))
    ) as updates:
        hearing = asyncio.ensure_future(hear(updates, first))
        await asyncio.sleep(0)
        await asyncio.to_thread(written, path, [first])
        await hearing
        for event in events[:3]:
            await asyncio.to_thread(EventLog(path).append, event)
            await hear(updates, event)
        await asyncio.to_thread(written, tmp_path / "new", [first, *events[:4]])
        await asyncio.to_thread((tmp_path / "new").rename, path)
        await hear(updates, events[3])
        await asyncio.to_thread(EventLog(path).append, events[4])
        await hear(updates, events[4])

    assert [first, *events] == heard


def test_the_end_is_shown_until_all_is_read() -> None:
    told = SessionTranscript()
    told.add_batch(EventBatch((MessageWritten(at=0.0, text="last"),), Cursor(50), is_end=True))
    assert ["last"] == [block.event.text for block in told.shown.blocks if isinstance(block.event, MessageWritten)]
    assert START == told.cursor

    told.add_batch(EventBatch((MessageWritten(at=0.0, text="first"),), Cursor(50), more=True))
    assert told.shown is not told.transcript
    told.add_batch(EventBatch((MessageWritten(at=0.0, text="last"),), Cursor(100)))
    assert told.shown is told.transcript
    assert 2 == len(told.shown.blocks)
