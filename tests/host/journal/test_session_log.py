"""The host's pen: every fact reaches the log, in order, also over a full disk."""

import asyncio
import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kasmon import __version__
from kasmon.errors import InteractiveOnlyError
from kasmon.host.journal import async_writer as pen_module
from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.journal.blobs import KEPT, fitted
from kasmon.host.journal.session_log import INDEX_BYTES, SessionLog
from kasmon.host.rpc.frames import DescribePane
from kasmon.host.structured import host
from kasmon.model.commands import Answer, Interrupt, Mode, Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import (
    EVENT_BYTES,
    Event,
    LogOpened,
    MessageWritten,
    NoticeRaised,
    ReceiptMoved,
    RequestOpened,
    SessionCreated,
    SessionEnded,
    SessionStarted,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    encode,
)
from kasmon.model.permission import Decision, Request, RequestId
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_cache import remember
from kasmon.store.fleet_index import FleetIndex
from tests.host.house import ME, House, do, prompt
from tests.host.puppet import Puppet, asked
from tests.waiting import auntil, until


def said(text: str) -> MessageWritten:
    return MessageWritten(at=1.0, text=text)


def queued(n: int, state: ReceiptState = ReceiptState.QUEUED, prompt: str = "") -> ReceiptMoved:
    receipt = Receipt(id=ReceiptId(f"{ME}-r{n}"), session=ME, state=state)
    return ReceiptMoved(at=1.0, receipt=receipt, prompt=prompt, by="wave")


@pytest.fixture
def book(house: House) -> SessionLog:
    house.wants(wave=3)
    return SessionLog(house.places, ME)


class FullDisk:
    """A log that cannot be written while a link that leads nowhere stands in its place; each change is one step."""

    def __init__(self, log: Path) -> None:
        self.log, self.kept, self.link = log, log.with_suffix(".kept"), log.with_suffix(".link")

    def fill(self) -> None:
        self.kept.hardlink_to(self.log)
        self.link.symlink_to("nowhere")
        self.link.replace(self.log)

    def free(self) -> None:
        self.kept.replace(self.log)


@pytest.fixture
def disk(house: House) -> FullDisk:
    return FullDisk(house.places.log(ME))


# Book


def test_a_new_log_is_opened_once(book: SessionLog, house: House) -> None:
    SessionLog(house.places, ME)

    (opened,) = house.events()
    assert isinstance(opened, LogOpened)
    assert (ME, __version__) == (opened.session, opened.kasmon)


def test_a_book_knows_the_session_that_its_launch_and_its_facts_make(book: SessionLog, house: House) -> None:
    assert (Mode.SDK, 3, SessionState.STARTING) == (book.session.mode, book.session.wave, book.session.state)

    book.append(SessionStarted(at=2.0))
    assert SessionState.IDLE is book.session.state
    assert book.session == SessionLog(house.places, ME).session


def test_a_book_without_a_launch_still_takes_facts(house: House) -> None:
    house.places.folder(ME).mkdir()

    assert SessionLog(house.places, ME).append(SessionEnded(at=1.0, why="no launch"))
    assert [LogOpened, SessionEnded] == [type(event) for event in house.events()]


def test_the_queue_is_read_back_with_its_prompts(book: SessionLog, house: House) -> None:
    book.append(queued(1, prompt="one"))
    book.append(queued(2, prompt="two"))
    book.append(queued(3, prompt="three"))
    book.append(queued(2, ReceiptState.TYPED))

    prompts = SessionLog(house.places, ME).prompts
    assert [("one", "wave"), ("three", "wave")] == [(moved.prompt, moved.by) for moved in prompts.values()]


def test_a_log_that_grows_has_the_index_refreshed_without_a_dashboard(house: House) -> None:
    """Else the first who lists after a long night would fold all of it."""
    EventLog(house.places.fleet_log).append(SessionCreated(at=1.0, launch=house.wants()))
    book = SessionLog(house.places, ME)
    text = "x" * (EVENT_BYTES // 2)
    for _ in range(4 * INDEX_BYTES // len(text)):
        book.append(said(text))

    def unread() -> int:
        fold = FleetIndex(house.places)
        remember(house.places.index, fold)
        fold.read_fleet()
        fold.read_session(ME)
        return fold.folded_bytes

    until(lambda: unread() < 2 * INDEX_BYTES < house.places.log(ME).stat().st_size, what="the index")
    until(lambda: all(thread.name != "refreshes the index" for thread in threading.enumerate()))


def test_a_fact_counts_from_the_moment_it_is_noted(book: SessionLog, house: House) -> None:
    book.note(SessionStarted(at=2.0))

    assert SessionState.IDLE is book.session.state
    assert (1, []) == (book.unwritten, house.only(SessionStarted))
    assert book.flush()
    assert (0, 1) == (book.unwritten, len(house.only(SessionStarted)))


def test_over_a_full_disk_facts_wait_in_order_and_none_is_lost(book: SessionLog, house: House, disk: FullDisk) -> None:
    book.append(said("before"))
    disk.fill()
    for n in range(5):
        assert not book.append(said(str(n)))
    assert (5, "Too many levels of symbolic links") == (book.unwritten, book.trouble)
    disk.free()
    assert book.append(said("after"))

    assert ["before", "0", "1", "2", "3", "4", "after"] == [fact.text for fact in house.only(MessageWritten)]
    assert (0, "") == (book.unwritten, book.trouble)


def test_what_cannot_be_written_down_at_all_is_no_fact(book: SessionLog) -> None:
    with pytest.raises(ValueError, match="no line of a log"):
        book.note(ThoughtWritten(at=1.0, text=object()))  # type: ignore[arg-type]

    assert 0 == book.unwritten


FULL = """
import resource, sys
from kasmon.host.journal.session_log import SessionLog
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.paths import places

book = SessionLog(places(), SessionId(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
for n in range(40):
    book.append(MessageWritten(at=1.0, text=f"{n} " + "x" * 50))
assert book.unwritten > 30, book.unwritten
assert book.trouble == "File too large", book.trouble
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert book.flush()
"""


def test_a_line_that_went_in_only_in_part_is_written_again_whole(house: House) -> None:
    """A disk that fills up in the middle of a line, for real."""
    house.wants()
    subprocess.run([sys.executable, "-P", "-c", FULL, ME], env=house.environment, check=True, timeout=30)

    assert [str(n) for n in range(40)] == [fact.text.split()[0] for fact in house.only(MessageWritten)]


# Long facts

HUGE = "ä" * EVENT_BYTES


@pytest.mark.parametrize(
    ("event", "whole"),
    [
        (said(HUGE), HUGE),
        (ToolFinished(at=1.0, call="1", output=HUGE), HUGE),
        (ToolFinished(at=1.0, call="1", output="out", diff=HUGE), "out\n" + HUGE),
        (ThoughtWritten(at=1.0, text=HUGE), HUGE),
        (NoticeRaised(at=1.0, text="\0" * EVENT_BYTES), "\0" * EVENT_BYTES),
        (ToolStarted(at=1.0, call="1", tool="Write", title=HUGE, input=HUGE), HUGE),
        (TurnStarted(at=1.0, prompt=HUGE), HUGE),
    ],
    ids=["message", "output", "diff", "thought", "controls", "tool", "prompt"],
)
def test_a_fact_too_long_for_a_line_keeps_its_text_beside_the_log(
    book: SessionLog, house: House, event: Event, whole: str
) -> None:
    assert book.append(event)

    assert max(map(len, house.places.log(ME).read_bytes().splitlines())) <= EVENT_BYTES
    kept = house.places.blobs(ME) / hashlib.sha256(whole.encode()).hexdigest()
    assert whole == kept.read_bytes().decode()
    assert kept.name in encode(house.events()[-1]).decode()
    assert 0o600 == kept.stat().st_mode & 0o777


@pytest.mark.parametrize("length", [0, 100, KEPT, EVENT_BYTES // 4])
def test_a_fact_that_fits_stays_as_it_is(length: int) -> None:
    assert fitted(said("x" * length)) == said("x" * length)


def test_what_a_person_decides_on_is_never_cut(book: SessionLog, house: House) -> None:
    request = RequestOpened(at=1.0, request=Request(id=RequestId(f"{ME}-1"), session=ME, shown=HUGE))
    book.append(request)
    book.append(queued(1, prompt=HUGE))

    assert [HUGE] == [fact.request.shown for fact in house.only(RequestOpened)]
    assert HUGE == next(iter(SessionLog(house.places, ME).prompts.values())).prompt


def test_over_a_full_disk_a_long_fact_waits_whole(book: SessionLog, house: House, disk: FullDisk) -> None:
    disk.fill()
    assert not book.append(said(HUGE))
    disk.free()
    assert book.flush()

    (fact,) = house.only(MessageWritten)
    assert HUGE == (house.places.blobs(ME) / fact.blob).read_text("utf-8")


# Pen


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries again sooner here."""
    monkeypatch.setattr(pen_module, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(pen_module, "LONGEST_PAUSE_S", 0.02)


async def test_what_was_noted_is_soon_written(book: SessionLog, house: House) -> None:
    log_writer = LogWriter(book)
    log_writer.note(said("one"))

    assert await log_writer.written(10)
    assert ["one"] == [fact.text for fact in house.only(MessageWritten)]
    assert await log_writer.aclose(10)


async def test_the_pen_tries_again_until_the_disk_has_room_and_says_what_was(
    book: SessionLog, house: House, disk: FullDisk, quick: None
) -> None:
    log_writer = LogWriter(book)
    disk.fill()
    for n in range(10):
        log_writer.note(said(str(n)))
    assert not await log_writer.written(0.1)
    disk.free()
    assert await log_writer.written(10)
    (notice,) = await auntil(lambda: house.only(NoticeRaised))
    await log_writer.aclose(10)

    assert [str(n) for n in range(10)] == [fact.text for fact in house.only(MessageWritten)]
    assert "Too many levels of symbolic links" in notice.text


async def test_a_closing_pen_writes_what_it_has(book: SessionLog, house: House) -> None:
    log_writer = LogWriter(book)
    for n in range(300):
        log_writer.note(said(str(n)))
    assert await log_writer.aclose(None)

    assert 300 == len(house.only(MessageWritten))
    assert await log_writer.aclose(None)


async def test_a_closing_pen_says_that_something_was_left(book: SessionLog, disk: FullDisk, quick: None) -> None:
    log_writer = LogWriter(book)
    disk.fill()
    log_writer.note(said("one"))

    assert not await log_writer.aclose(0.05)


async def test_facts_that_wait_for_the_disk_hold_back_the_agent(
    house: House, puppet: Puppet, disk: FullDisk, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded; the agent's own pipe fills up instead. Nothing is dropped."""
    monkeypatch.setattr(pen_module, "UNWRITTEN", 20)
    async with house.hosting(puppet):
        await auntil(lambda: house.only(SessionStarted))
        disk.fill()
        puppet.say(*(said(str(n)) for n in range(100)))
        await auntil(lambda: puppet.waiting <= 79)
        assert 75 <= puppet.waiting
        disk.free()
        await auntil(lambda: len(house.only(MessageWritten)) == 100)

    assert [str(n) for n in range(100)] == [fact.text for fact in house.only(MessageWritten)]


async def test_a_full_disk_does_not_take_away_live_control(
    house: House, puppet: Puppet, disk: FullDisk, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "WRITTEN_S", 0.05)
    async with house.hosting(puppet):
        link = await house.linked()
        await prompt(link, "tidy up")
        puppet.say(asked())
        (request,) = await auntil(lambda: house.session().asks)
        disk.fill()
        answer = Answer(request=request.id, digest=request.digest, decision=Decision.DENY)
        await do(link, answer)
        await do(link, Interrupt())
        assert [answer.decision] == [wish.decision for wish in puppet.told if isinstance(wish, Answer)]
        disk.free()
        await auntil(lambda: [Decision.DENY] == [closed.decision for closed in house.session().closed])


async def test_a_receipt_is_in_the_log_before_its_sender_hears_of_it(
    house: House, puppet: Puppet, disk: FullDisk, quick: None
) -> None:
    async with house.hosting(puppet):
        await auntil(lambda: house.only(SessionStarted))
        link = await house.linked()
        disk.fill()
        asking = asyncio.create_task(do(link, Prompt(text="hello")))
        await auntil(lambda: puppet.prompts)
        with pytest.raises(InteractiveOnlyError):
            await link.ask(DescribePane(n=0, session=ME))
        assert not asking.done()
        disk.free()

        assert (await asking).receipt in [moved.receipt for moved in house.only(ReceiptMoved)]
