"""The truth about one session: append-only lines, a cursor, and nothing lost by a crash of reader or writer."""

import fcntl
import multiprocessing
import os
import resource
import stat
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasmon.errors import LogMissingError
from kasmon.model.events import CommandsAnnounced, Event, MessageWritten, SlashCommand, UnknownEvent, encode
from kasmon.store.event_log import START, Cursor, EventLog
from tests.support.sample_events import facts
from tests.support.wait import until

LOCKS = Path("/proc/locks")
FRESH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "events.jsonl")


def said(text: str) -> MessageWritten:
    return MessageWritten(at=1.0, text=text)


def texts(log: EventLog, since: Cursor = START) -> list[str]:
    return [event.text for event, _ in log.read(since) if isinstance(event, MessageWritten)]


def test_the_last_event_of_a_kind_is_found_even_if_a_text_quotes_one(log: EventLog) -> None:
    assert log.find_last(CommandsAnnounced) is None
    log.append(said("none so far"))
    assert log.find_last(CommandsAnnounced) is None
    for name in ("first", "second"):
        log.append(CommandsAnnounced(at=1.0, slash_commands=(SlashCommand(command=name),)))
    log.append(said('"kind":"commands.announced"'))

    found = log.find_last(CommandsAnnounced)
    assert isinstance(found, CommandsAnnounced)
    assert ["second"] == [each.command for each in found.slash_commands]


def test_appended_events_are_read_in_order(log: EventLog) -> None:
    for text in ("one", "two", "three"):
        log.append(said(text))

    assert ["one", "two", "three"] == texts(log)


@FRESH
@given(history=st.lists(facts(), max_size=8))
def test_every_event_is_read_as_it_was_written(history: list[Event], tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.path.unlink(missing_ok=True)
    log.path.touch()
    for event in history:
        log.append(event)

    assert history == [event for event, _ in log.read()]


def test_a_log_is_private(log: EventLog) -> None:
    log.append(said("secret"))

    assert 0o600 == stat.S_IMODE(log.path.stat().st_mode)


def test_a_log_is_not_written_through_a_link(log: EventLog, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    log.path.symlink_to(elsewhere)

    with pytest.raises(OSError, match="symbolic links"):
        log.append(said("secret"))
    assert not elsewhere.exists()


def test_a_session_without_a_log_says_so_and_an_empty_log_is_no_error(log: EventLog) -> None:
    with pytest.raises(LogMissingError):
        list(log.read())
    assert 0 == log.size()

    log.path.touch()
    assert [] == list(log.read())


# The cursor


def test_reading_continues_where_it_stopped(log: EventLog) -> None:
    log.append(said("one"))
    (_, cursor) = next(iter(log.read()))
    log.append(said("two"))

    assert ["two"] == texts(log, cursor)


def test_appending_returns_the_cursor_after_the_event(log: EventLog) -> None:
    log.append(said("one"))
    cursor = log.append(said("two"))
    log.append(said("three"))

    assert ["three"] == texts(log, cursor)
    assert cursor == [at for _, at in log.read()][1]


@FRESH
@given(stops=st.lists(st.integers(0, 5), max_size=6))
def test_a_reader_that_stops_at_any_point_loses_and_repeats_nothing(stops: list[int], tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.path.unlink(missing_ok=True)
    log.path.touch()
    heard, cursor, told = [], START, 0
    for count in [*stops, 0]:
        for _ in range(3):
            log.append(said(str(told)))
            told += 1
        for number, (event, cursor_behind) in enumerate(log.read(cursor)):
            if number == count and count:
                break
            heard.append(event)
            cursor = cursor_behind
    heard += [event for event, _ in log.read(cursor)]

    assert [said(str(number)) for number in range(told)] == heard


# Torn lines


LINES = [said("the first"), said("wörds ⟨in⟩ {braces}"), said("")]


def test_a_line_cut_at_any_byte_is_left_for_later_then_skipped(log: EventLog) -> None:
    """Its writer died in the middle; the next one goes on. Without its newline alone, the line is there."""
    first, torn, last = LINES
    for length in range(len(encode(torn)) + 1):
        log.path.write_bytes(encode(first) + b"\n" + encode(torn)[:length])
        assert [first] == [event for event, _ in log.read()], length

        log.append(last)

        whole = length == len(encode(torn))
        assert [first, *([torn] if whole else []), last] == [event for event, _ in log.read()], length


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=facts(), data=st.data())
def test_a_cut_event_of_any_kind_is_never_read_as_another(event: Event, data: st.DataObject, tmp_path: Path) -> None:
    """A piece of JSON that happens to end in a brace is no fact either."""
    log = EventLog(tmp_path / "events.jsonl")
    line = encode(event)
    log.path.write_bytes(line[: data.draw(st.integers(0, len(line) - 1))])
    log.append(LINES[0])

    assert [LINES[0]] == [event for event, _ in log.read()]


def test_a_line_that_grows_while_it_is_read_is_returned_once_it_is_whole(log: EventLog) -> None:
    line = encode(LINES[0]) + b"\n"
    heard, cursor = [], START
    for length in range(1, len(line) + 1):
        log.path.write_bytes(line[:length])
        for event, cursor_behind in log.read(cursor):
            heard.append(event)
            cursor = cursor_behind

    assert [LINES[0]] == heard


def test_raw_lines_are_whole_lines(log: EventLog) -> None:
    log.path.write_bytes(b"one\n\ntwo\nthr")

    assert [(b"one", 4), (b"", 5), (b"two", 9)] == list(log.lines())


def test_a_line_of_a_later_version_is_kept_raw_and_foreign_bytes_do_not_stop_the_reader(log: EventLog) -> None:
    log.path.write_bytes(b'{"kind":"something.new","at":5.0,"mood":"good"}\n')
    assert [UnknownEvent(at=5.0, raw='{"kind":"something.new","at":5.0,"mood":"good"}')] == [e for e, _ in log.read()]

    log.path.write_bytes(b"\0\xff\xfe garbage\n" + encode(LINES[0]) + b"\n\n[]\n7\n" + encode(LINES[2]) + b"\n")
    assert [LINES[0], LINES[2]] == [event for event, _ in log.read()]


@pytest.mark.parametrize(
    "foreign",
    [b"\0\xff\xfe garbage\n", b'{"kind":"of.tomorrow"}\n{}\nnull\n\n', encode(LINES[1])[:-3], b"half a li"],
    ids=["no text", "of tomorrow", "torn", "torn, and no JSON"],
)
def test_an_unreadable_line_stays_unchanged_whatever_follows_it(log: EventLog, foreign: bytes) -> None:
    log.path.write_bytes(encode(LINES[0]) + b"\n" + foreign)

    known = list(log.read())
    log.append(LINES[2])

    assert LINES[0] == known[0][0]
    assert log.path.read_bytes().startswith(encode(LINES[0]) + b"\n" + foreign)
    assert LINES[2] == list(log.read())[-1][0]


def test_a_line_of_a_megabyte_is_read_whole(log: EventLog) -> None:
    log.append(said("x" * 1_500_000))
    log.append(said("after"))

    assert [1_500_000, 5] == [len(text) for text in texts(log)]


# Several processes


def test_many_writers_at_once_never_mix_their_lines(log: EventLog) -> None:
    writers = [_process(_write_many, log.path, number) for number in range(4)]
    for writer in writers:
        writer.join(30)

    assert [0] * 4 == [writer.exitcode for writer in writers]
    heard = texts(log)
    assert 4 * 150 == len(heard)
    for number in range(4):
        assert [f"{number}/{n}" for n in range(150)] == [t.split()[0] for t in heard if t.startswith(f"{number}/")]


@pytest.mark.skipif(not LOCKS.exists(), reason="who waits for a lock is read from /proc")
def test_a_writer_waits_for_the_one_before(log: EventLog) -> None:
    """Only then can it see whether that one's line was torn."""
    log.append(said("first"))
    with log.path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = _process(_write_one, log.path)
        until(lambda: any("->" in line and f" {writer.pid} " in line for line in LOCKS.read_text().splitlines()))
        file.write(b'{"torn')
        file.flush()
        assert ["first"] == texts(log)
        fcntl.flock(file, fcntl.LOCK_UN)  # the writer was forked with this handle: closing ours is not enough
    writer.join(30)

    assert ["first", "one"] == texts(log)


def test_a_reader_beside_a_writer_reads_everything_once(log: EventLog) -> None:
    log.path.touch()
    writer = _process(_write_many, log.path, 7)
    heard: list[str] = []
    cursor = START

    def all_heard() -> bool:
        nonlocal cursor
        for event, cursor_behind in log.read(cursor):
            cursor = cursor_behind
            heard.append(event.text.split()[0] if isinstance(event, MessageWritten) else repr(event))
        return len(heard) >= 150

    until(all_heard)
    writer.join(30)

    assert [f"7/{n}" for n in range(150)] == heard


def test_a_writer_killed_at_any_moment_leaves_only_whole_events(log: EventLog) -> None:
    log.path.touch()
    for round_number in range(5):
        writer = _process(_write_for_ever, log.path, round_number)
        before = log.size()
        until(lambda before=before: log.size() > before + 20_000)  # type: ignore[misc]
        writer.kill()
        writer.join(30)

    log.append(said("the next writer"))
    events = [event for event, _ in log.read()]
    assert all(isinstance(event, MessageWritten) for event in events)
    assert said("the next writer") == events[-1]


# A full disk


LONG = len(encode(MessageWritten(at=1.0, text="x" * 300)))


@pytest.mark.parametrize("room", [0, 1, 40, LONG - 1, LONG], ids=["none", "a byte", "some", "no end", "no newline"])
def test_a_full_disk_fails_with_an_error_and_leaves_no_part_of_the_event(room: int, log: EventLog) -> None:
    log.append(said("before"))
    writer = _process(_write_into_a_limit, log.path, log.size() + room)
    writer.join(30)

    assert 0 == writer.exitcode, "it wrote what there was no room for, or failed otherwise"
    assert ["before"] == texts(log)
    log.append(said("after"))
    assert ["before", "after"] == texts(log)


@pytest.mark.parametrize("room", [0, 1, 40, LONG - 1, LONG], ids=["none", "a byte", "some", "no end", "no newline"])
def test_an_event_that_a_full_disk_refused_is_written_once_when_there_is_space(room: int, log: EventLog) -> None:
    writer = _process(_write_when_there_is_room, log.path, room)
    writer.join(30)

    assert 0 == writer.exitcode
    assert ["x" * 300] == texts(log)


def _write_many(path: Path, number: int) -> None:
    log = EventLog(path)
    for n in range(150):
        log.append(said(f"{number}/{n} " + "x" * (n * 37 % 5000)))


def _write_one(path: Path) -> None:
    EventLog(path).append(said("one"))


def _write_for_ever(path: Path, number: int) -> None:
    log = EventLog(path)
    while True:
        log.append(said(f"{number} " + "x" * 3000))


def _write_into_a_limit(path: Path, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        EventLog(path).append(said("x" * 300))
    except OSError:
        os._exit(0)
    os._exit(3)


def _write_when_there_is_room(path: Path, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    log = EventLog(path)
    for _ in range(3):
        try:
            log.append(said("x" * 300))
        except OSError:
            continue
        os._exit(3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.append(said("x" * 300))


def _process(target: object, *args: object) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=target, args=args, daemon=True)  # type: ignore[arg-type]
    process.start()
    return process


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join(60)


def test_a_link_that_leads_nowhere_is_no_missing_log(tmp_path: Path) -> None:
    """Else its session would count as one that never began, and its agent would be started a second time."""
    (tmp_path / "events.jsonl").symlink_to("nowhere")

    with pytest.raises(FileNotFoundError):
        list(EventLog(tmp_path / "events.jsonl").read())
