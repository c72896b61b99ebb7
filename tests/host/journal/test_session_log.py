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
from kasmon.host.journal.session_log import INDEX_BYTES, KEPT, SessionLog, fitted
from kasmon.host.rpc.frames import DescribePane
from kasmon.host.structured import host
from kasmon.model import events
from kasmon.model.commands import Answer, Interrupt, Mode, Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.permission import Decision, Request, RequestId
from kasmon.model.session_state import SessionState
from kasmon.store.event_log import EventLog
from kasmon.store.fleet_cache import load_cache
from kasmon.store.fleet_index import FleetIndex
from tests.support.agents.fake_agent import FakeAgent, asked
from tests.support.host.env import ME, Env, do, prompt
from tests.support.wait import auntil, until


def said(text: str) -> events.MessageWritten:
    return events.MessageWritten(at=1.0, text=text)


def queued(n: int, state: ReceiptState = ReceiptState.QUEUED, prompt: str = "") -> events.ReceiptChanged:
    receipt = Receipt(id=ReceiptId(f"{ME}-r{n}"), session=ME, state=state)
    return events.ReceiptChanged(at=1.0, receipt=receipt, prompt=prompt, by="wave")


@pytest.fixture
def book(env: Env) -> SessionLog:
    env.wants(wave=3)
    return SessionLog(env.paths, ME)


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
def disk(env: Env) -> FullDisk:
    return FullDisk(env.paths.log(ME))


# Book


def test_a_new_log_is_opened_once(book: SessionLog, env: Env) -> None:
    SessionLog(env.paths, ME)

    (opened,) = env.events()
    assert isinstance(opened, events.LogOpened)
    assert (ME, __version__) == (opened.session, opened.kasmon)


def test_a_session_log_tracks_the_session_of_its_launch_and_its_events(book: SessionLog, env: Env) -> None:
    assert (Mode.SDK, 3, SessionState.STARTING) == (book.session.mode, book.session.wave, book.session.state)

    book.append(events.SessionStarted(at=2.0))
    assert SessionState.IDLE is book.session.state
    assert book.session == SessionLog(env.paths, ME).session


def test_a_session_log_without_a_launch_still_accepts_events(env: Env) -> None:
    env.paths.folder(ME).mkdir()

    assert SessionLog(env.paths, ME).append(events.SessionEnded(at=1.0, why="no launch"))
    assert [events.LogOpened, events.SessionEnded] == [type(event) for event in env.events()]


def test_the_queue_is_read_back_with_its_prompts(book: SessionLog, env: Env) -> None:
    book.append(queued(1, prompt="one"))
    book.append(queued(2, prompt="two"))
    book.append(queued(3, prompt="three"))
    book.append(queued(2, ReceiptState.TYPED))

    prompts = SessionLog(env.paths, ME).prompts
    assert [("one", "wave"), ("three", "wave")] == [(moved.prompt, moved.by) for moved in prompts.values()]


def test_a_log_that_grows_has_the_index_refreshed_without_a_dashboard(env: Env) -> None:
    """Else the first who lists after a long night would fold all of it."""
    EventLog(env.paths.fleet_log).append(events.SessionCreated(at=1.0, launch=env.wants()))
    book = SessionLog(env.paths, ME)
    text = "x" * (events.EVENT_BYTES // 2)
    for _ in range(4 * INDEX_BYTES // len(text)):
        book.append(said(text))

    def unread() -> int:
        fold = FleetIndex(env.paths)
        load_cache(env.paths.index, fold)
        fold.read_fleet()
        fold.read_session(ME)
        return fold.folded_bytes

    until(lambda: unread() < 2 * INDEX_BYTES < env.paths.log(ME).stat().st_size, what="the index")
    until(lambda: all(thread.name != "refreshes the index" for thread in threading.enumerate()))


def test_an_event_counts_once_it_is_queued(book: SessionLog, env: Env) -> None:
    book.note(events.SessionStarted(at=2.0))

    assert SessionState.IDLE is book.session.state
    assert (1, []) == (book.unwritten, env.only(events.SessionStarted))
    assert book.flush()
    assert (0, 1) == (book.unwritten, len(env.only(events.SessionStarted)))


def test_on_a_full_disk_events_wait_in_order_and_none_is_lost(book: SessionLog, env: Env, disk: FullDisk) -> None:
    book.append(said("before"))
    disk.fill()
    for n in range(5):
        assert not book.append(said(str(n)))
    assert (5, "Too many levels of symbolic links") == (book.unwritten, book.trouble)
    disk.free()
    assert book.append(said("after"))

    assert ["before", "0", "1", "2", "3", "4", "after"] == [fact.text for fact in env.only(events.MessageWritten)]
    assert (0, "") == (book.unwritten, book.trouble)


def test_an_event_that_cannot_be_encoded_is_dropped(book: SessionLog) -> None:
    with pytest.raises(ValueError, match="no line of a log"):
        book.note(events.ThoughtWritten(at=1.0, text=object()))  # type: ignore[arg-type]

    assert 0 == book.unwritten


FULL = """
import resource, sys
from kasmon.host.journal.session_log import SessionLog
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.paths import user_paths

book = SessionLog(user_paths(), SessionId(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
for n in range(40):
    book.append(MessageWritten(at=1.0, text=f"{n} " + "x" * 50))
assert book.unwritten > 30, book.unwritten
assert book.trouble == "File too large", book.trouble
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert book.flush()
"""


def test_a_partly_written_line_is_written_again_whole(env: Env) -> None:
    """A disk that fills up in the middle of a line, for real."""
    env.wants()
    subprocess.run([sys.executable, "-P", "-c", FULL, ME], env=env.environment, check=True, timeout=30)

    assert [str(n) for n in range(40)] == [fact.text.split()[0] for fact in env.only(events.MessageWritten)]


# Long facts

HUGE = "ä" * events.EVENT_BYTES


@pytest.mark.parametrize(
    ("event", "whole"),
    [
        (said(HUGE), HUGE),
        (events.ToolFinished(at=1.0, call="1", output=HUGE), HUGE),
        (events.ToolFinished(at=1.0, call="1", output="out", diff=HUGE), "out\n" + HUGE),
        (events.ThoughtWritten(at=1.0, text=HUGE), HUGE),
        (events.NoticeRaised(at=1.0, text="\0" * events.EVENT_BYTES), "\0" * events.EVENT_BYTES),
        (events.ToolStarted(at=1.0, call="1", tool="Write", title=HUGE, input=HUGE), HUGE),
        (events.TurnStarted(at=1.0, prompt=HUGE), HUGE),
    ],
    ids=["message", "output", "diff", "thought", "controls", "tool", "prompt"],
)
def test_an_event_too_long_for_a_line_stores_its_text_beside_the_log(
    book: SessionLog, env: Env, event: events.Event, whole: str
) -> None:
    assert book.append(event)

    assert max(map(len, env.paths.log(ME).read_bytes().splitlines())) <= events.EVENT_BYTES
    kept = env.paths.blobs(ME) / hashlib.sha256(whole.encode()).hexdigest()
    assert whole == kept.read_bytes().decode()
    assert kept.name in events.encode(env.events()[-1]).decode()
    assert 0o600 == kept.stat().st_mode & 0o777


@pytest.mark.parametrize("length", [0, 100, KEPT, events.EVENT_BYTES // 4])
def test_an_event_that_fits_is_unchanged(length: int) -> None:
    assert fitted(said("x" * length)) == said("x" * length)


def test_the_text_of_a_request_is_never_cut(book: SessionLog, env: Env) -> None:
    request = events.RequestOpened(at=1.0, request=Request(id=RequestId(f"{ME}-1"), session=ME, shown=HUGE))
    book.append(request)
    book.append(queued(1, prompt=HUGE))

    assert [HUGE] == [fact.request.shown for fact in env.only(events.RequestOpened)]
    assert HUGE == next(iter(SessionLog(env.paths, ME).prompts.values())).prompt


def test_on_a_full_disk_a_long_event_waits_whole(book: SessionLog, env: Env, disk: FullDisk) -> None:
    disk.fill()
    assert not book.append(said(HUGE))
    disk.free()
    assert book.flush()

    (fact,) = env.only(events.MessageWritten)
    assert HUGE == (env.paths.blobs(ME) / fact.blob).read_text("utf-8")


# Pen


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries again sooner here."""
    monkeypatch.setattr(pen_module, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(pen_module, "LONGEST_PAUSE_S", 0.02)


async def test_a_queued_event_is_written_soon(book: SessionLog, env: Env) -> None:
    log_writer = LogWriter(book)
    log_writer.note(said("one"))

    assert await log_writer.wait_for_write(10)
    assert ["one"] == [fact.text for fact in env.only(events.MessageWritten)]
    assert await log_writer.aclose(10)


async def test_the_writer_retries_until_the_disk_has_space_and_reports_it(
    book: SessionLog, env: Env, disk: FullDisk, quick: None
) -> None:
    log_writer = LogWriter(book)
    disk.fill()
    for n in range(10):
        log_writer.note(said(str(n)))
    assert not await log_writer.wait_for_write(0.1)
    disk.free()
    assert await log_writer.wait_for_write(10)
    (notice,) = await auntil(lambda: env.only(events.NoticeRaised))
    await log_writer.aclose(10)

    assert [str(n) for n in range(10)] == [fact.text for fact in env.only(events.MessageWritten)]
    assert "Too many levels of symbolic links" in notice.text


async def test_a_closing_writer_writes_its_queue(book: SessionLog, env: Env) -> None:
    log_writer = LogWriter(book)
    for n in range(300):
        log_writer.note(said(str(n)))
    assert await log_writer.aclose(None)

    assert 300 == len(env.only(events.MessageWritten))
    assert await log_writer.aclose(None)


async def test_a_closing_writer_reports_events_that_it_could_not_write(
    book: SessionLog, disk: FullDisk, quick: None
) -> None:
    log_writer = LogWriter(book)
    disk.fill()
    log_writer.note(said("one"))

    assert not await log_writer.aclose(0.05)


async def test_events_that_wait_for_the_disk_slow_the_agent_down(
    env: Env, fake: FakeAgent, disk: FullDisk, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded; the agent's own pipe fills up instead. Nothing is dropped."""
    monkeypatch.setattr(pen_module, "UNWRITTEN", 20)
    async with env.hosting(fake):
        await auntil(lambda: env.only(events.SessionStarted))
        disk.fill()
        fake.say(*(said(str(n)) for n in range(100)))
        await auntil(lambda: fake.waiting <= 79)
        assert 75 <= fake.waiting
        disk.free()
        await auntil(lambda: len(env.only(events.MessageWritten)) == 100)

    assert [str(n) for n in range(100)] == [fact.text for fact in env.only(events.MessageWritten)]


async def test_a_full_disk_does_not_stop_live_control(
    env: Env, fake: FakeAgent, disk: FullDisk, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "WRITTEN_S", 0.05)
    async with env.hosting(fake):
        link = await env.linked()
        await prompt(link, "tidy up")
        fake.say(asked())
        (request,) = await auntil(lambda: env.session().requests)
        disk.fill()
        answer = Answer(request=request.id, digest=request.digest, decision=Decision.DENY)
        await do(link, answer)
        await do(link, Interrupt())
        assert [answer.decision] == [wish.decision for wish in fake.told if isinstance(wish, Answer)]
        disk.free()
        await auntil(lambda: [Decision.DENY] == [closed.decision for closed in env.session().closed])


async def test_a_receipt_is_in_the_log_before_its_sender_gets_it(
    env: Env, fake: FakeAgent, disk: FullDisk, quick: None
) -> None:
    async with env.hosting(fake):
        await auntil(lambda: env.only(events.SessionStarted))
        link = await env.linked()
        disk.fill()
        asking = asyncio.create_task(do(link, Prompt(text="hello")))
        await auntil(lambda: fake.prompts)
        with pytest.raises(InteractiveOnlyError):
            await link.ask(DescribePane(n=0, session=ME))
        assert not asking.done()
        disk.free()

        assert (await asking).receipt in [moved.receipt for moved in env.only(events.ReceiptChanged)]
