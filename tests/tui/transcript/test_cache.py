"""A session's log on its way to the screen: the end of a long one first, then all of it, then what is added."""

from pathlib import Path
from typing import cast

import pytest

from kasmon.model.events import Event, MessageWritten, NoticeRaised, SessionStarted, encode
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.store.event_log import START, Cursor
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


async def heard(places: Paths, until: int, since: Cursor = START) -> list[TranscriptUpdate]:
    """What is heard until so many facts came in order."""
    told: list[TranscriptUpdate] = []
    count = 0
    async for each in follow(places, None, S, since):
        told.append(each)
        count += len(each.events) if isinstance(each, EventBatch) and not each.is_end else 0
        if count >= until:
            return told
    return told


@pytest.fixture
def session_view() -> list[Event]:
    said = [MessageWritten(at=1.0, text=f"message {number} " + "x" * 500) for number in range(6000)]
    return [SessionStarted(at=0.0), *said]


async def test_the_end_of_a_long_log_comes_first_and_then_all_of_it(tmp_path: Path, session_view: list[Event]) -> None:
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


async def test_a_short_log_comes_at_once(tmp_path: Path, session_view: list[Event]) -> None:
    told = await heard(written(tmp_path / "log", session_view[:100]), 100)

    assert [(100, False, False)] == [
        (len(each.events), each.more, each.is_end) for each in told if isinstance(each, EventBatch)
    ]


async def test_who_knows_the_log_hears_only_what_is_new(tmp_path: Path, session_view: list[Event]) -> None:
    new = NoticeRaised(at=2.0, text="new")
    known = Cursor(sum(len(encode(event)) + 1 for event in session_view))

    told = await heard(written(tmp_path / "log", [*session_view, new]), 1, known)
    assert [(new,)] == [each.events for each in told if isinstance(each, EventBatch)]


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
