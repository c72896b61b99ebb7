"""The host's pen: every fact reaches the log, in order, also over a full disk."""

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from kasmon import __version__
from kasmon.errors import InteractiveOnlyError
from kasmon.host import pen as pen_module
from kasmon.host import process
from kasmon.host.blob import KEPT, fitted
from kasmon.host.book import Book
from kasmon.host.pen import Pen
from kasmon.host.wire import Look
from kasmon.model.command import Answer, Interrupt, Mode, Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.event import (
    EVENT_BYTES,
    Event,
    MessageSaid,
    NoticeRaised,
    Opened,
    ReceiptMoved,
    RequestOpened,
    SessionEnded,
    SessionStarted,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    encode,
)
from kasmon.model.permission import Decision, Request, RequestId
from kasmon.model.state import SessionState
from tests.host.house import ME, House, do, prompt
from tests.host.puppet import Puppet, asked
from tests.waiting import auntil


def said(text: str) -> MessageSaid:
    return MessageSaid(at=1.0, text=text)


def queued(n: int, state: ReceiptState = ReceiptState.QUEUED, prompt: str = "") -> ReceiptMoved:
    receipt = Receipt(id=ReceiptId(f"{ME}-r{n}"), session=ME, state=state)
    return ReceiptMoved(at=1.0, receipt=receipt, prompt=prompt, by="wave")


@pytest.fixture
def book(house: House) -> Book:
    house.wants(wave=3)
    return Book(house.places, ME)


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


def test_a_new_log_is_opened_once(book: Book, house: House) -> None:
    Book(house.places, ME)

    (opened,) = house.events()
    assert isinstance(opened, Opened)
    assert (ME, __version__) == (opened.session, opened.kasmon)


def test_a_book_knows_the_session_that_its_launch_and_its_facts_make(book: Book, house: House) -> None:
    assert (Mode.SDK, 3, SessionState.STARTING) == (book.session.mode, book.session.wave, book.session.state)

    book.append(SessionStarted(at=2.0))
    assert SessionState.IDLE is book.session.state
    assert book.session == Book(house.places, ME).session


def test_a_book_without_a_launch_still_takes_facts(house: House) -> None:
    house.places.folder(ME).mkdir()

    assert Book(house.places, ME).append(SessionEnded(at=1.0, why="no launch"))
    assert [Opened, SessionEnded] == [type(event) for event in house.events()]


def test_the_queue_is_read_back_with_its_prompts(book: Book, house: House) -> None:
    book.append(queued(1, prompt="one"))
    book.append(queued(2, prompt="two"))
    book.append(queued(3, prompt="three"))
    book.append(queued(2, ReceiptState.TYPED))

    prompts = Book(house.places, ME).prompts
    assert [("one", "wave"), ("three", "wave")] == [(moved.prompt, moved.by) for moved in prompts.values()]


def test_a_fact_counts_from_the_moment_it_is_noted(book: Book, house: House) -> None:
    book.note(SessionStarted(at=2.0))

    assert SessionState.IDLE is book.session.state
    assert (1, []) == (book.unwritten, house.only(SessionStarted))
    assert book.flush()
    assert (0, 1) == (book.unwritten, len(house.only(SessionStarted)))


def test_over_a_full_disk_facts_wait_in_order_and_none_is_lost(book: Book, house: House, disk: FullDisk) -> None:
    book.append(said("before"))
    disk.fill()
    for n in range(5):
        assert not book.append(said(str(n)))
    assert (5, "Too many levels of symbolic links") == (book.unwritten, book.trouble)
    disk.free()
    assert book.append(said("after"))

    assert ["before", "0", "1", "2", "3", "4", "after"] == [fact.text for fact in house.only(MessageSaid)]
    assert (0, "") == (book.unwritten, book.trouble)


def test_what_cannot_be_written_down_at_all_is_no_fact(book: Book) -> None:
    with pytest.raises(ValueError, match="no line of a log"):
        book.note(ThoughtSaid(at=1.0, text=object()))  # type: ignore[arg-type]

    assert 0 == book.unwritten


FULL = """
import resource, sys
from kasmon.host.book import Book
from kasmon.model.event import MessageSaid
from kasmon.model.permission import SessionId
from kasmon.paths import places

book = Book(places(), SessionId(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
for n in range(40):
    book.append(MessageSaid(at=1.0, text=f"{n} " + "x" * 50))
assert book.unwritten > 30, book.unwritten
assert book.trouble == "File too large", book.trouble
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert book.flush()
"""


def test_a_line_that_went_in_only_in_part_is_written_again_whole(house: House) -> None:
    """A disk that fills up in the middle of a line, for real."""
    house.wants()
    subprocess.run([sys.executable, "-P", "-c", FULL, ME], env=house.environment, check=True, timeout=30)

    assert [str(n) for n in range(40)] == [fact.text.split()[0] for fact in house.only(MessageSaid)]


# Long facts

HUGE = "ä" * EVENT_BYTES


@pytest.mark.parametrize(
    ("event", "whole"),
    [
        (said(HUGE), HUGE),
        (ToolFinished(at=1.0, call="1", output=HUGE), HUGE),
        (ToolFinished(at=1.0, call="1", output="out", diff=HUGE), "out\n" + HUGE),
        (ThoughtSaid(at=1.0, text=HUGE), HUGE),
        (NoticeRaised(at=1.0, text="\0" * EVENT_BYTES), "\0" * EVENT_BYTES),
        (ToolStarted(at=1.0, call="1", tool="Write", title=HUGE, input=HUGE), HUGE),
        (TurnStarted(at=1.0, prompt=HUGE), HUGE),
    ],
    ids=["message", "output", "diff", "thought", "controls", "tool", "prompt"],
)
def test_a_fact_too_long_for_a_line_keeps_its_text_beside_the_log(
    book: Book, house: House, event: Event, whole: str
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


def test_what_a_person_decides_on_is_never_cut(book: Book, house: House) -> None:
    request = RequestOpened(at=1.0, request=Request(id=RequestId(f"{ME}-1"), session=ME, shown=HUGE))
    book.append(request)
    book.append(queued(1, prompt=HUGE))

    assert [HUGE] == [fact.request.shown for fact in house.only(RequestOpened)]
    assert HUGE == next(iter(Book(house.places, ME).prompts.values())).prompt


def test_over_a_full_disk_a_long_fact_waits_whole(book: Book, house: House, disk: FullDisk) -> None:
    disk.fill()
    assert not book.append(said(HUGE))
    disk.free()
    assert book.flush()

    (fact,) = house.only(MessageSaid)
    assert HUGE == (house.places.blobs(ME) / fact.blob).read_text("utf-8")


# Pen


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries again sooner here."""
    monkeypatch.setattr(pen_module, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(pen_module, "LONGEST_PAUSE_S", 0.02)


async def test_what_was_noted_is_soon_written(book: Book, house: House) -> None:
    pen = Pen(book)
    pen.note(said("one"))

    assert await pen.written(10)
    assert ["one"] == [fact.text for fact in house.only(MessageSaid)]
    assert await pen.aclose(10)


async def test_the_pen_tries_again_until_the_disk_has_room_and_says_what_was(
    book: Book, house: House, disk: FullDisk, quick: None
) -> None:
    pen = Pen(book)
    disk.fill()
    for n in range(10):
        pen.note(said(str(n)))
    assert not await pen.written(0.1)
    disk.free()
    assert await pen.written(10)
    (notice,) = await auntil(lambda: house.only(NoticeRaised))
    await pen.aclose(10)

    assert [str(n) for n in range(10)] == [fact.text for fact in house.only(MessageSaid)]
    assert "Too many levels of symbolic links" in notice.text


async def test_a_closing_pen_writes_what_it_has(book: Book, house: House) -> None:
    pen = Pen(book)
    for n in range(300):
        pen.note(said(str(n)))
    assert await pen.aclose(None)

    assert 300 == len(house.only(MessageSaid))
    assert await pen.aclose(None)


async def test_a_closing_pen_says_that_something_was_left(book: Book, disk: FullDisk, quick: None) -> None:
    pen = Pen(book)
    disk.fill()
    pen.note(said("one"))

    assert not await pen.aclose(0.05)


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
        await auntil(lambda: len(house.only(MessageSaid)) == 100)

    assert [str(n) for n in range(100)] == [fact.text for fact in house.only(MessageSaid)]


async def test_a_full_disk_does_not_take_away_live_control(
    house: House, puppet: Puppet, disk: FullDisk, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WRITTEN_S", 0.05)
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
            await link.ask(Look(n=0, session=ME))
        assert not asking.done()
        disk.free()

        assert (await asking).receipt in [moved.receipt for moved in house.only(ReceiptMoved)]
