"""Searching everything: the same answer with an index, with half of one, a broken one and none."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kasmon.errors import UsageError
from kasmon.host.journal.session_log import fitted
from kasmon.model.commands import Launch, Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import (
    Event,
    MessageWritten,
    PartialTextWritten,
    ReceiptChanged,
    SessionCreated,
    SessionForgotten,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.transcript.search.pattern import SearchPattern
from kasmon.model.transcript.search.text import SearchHit
from kasmon.paths import Paths, user_paths
from kasmon.store.event_log import EventLog
from kasmon.store.search_index import STRETCH_BYTES, SearchIndex, SearchLookup
from kasmon.store.search_sources import SearchQuery, blocks, hits, sources
from kasmon.store.terminal_record import TerminalRecord
from kasmon.supervisor.search.index_writer import SourceCache, update_all, update_some
from kasmon.supervisor.search.search import list_sessions, search

OLD = 1_000_000.0
"""A time that was long ago."""


@pytest.fixture
def here(tmp_path: Path) -> Paths:
    found = user_paths({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "s"), "XDG_RUNTIME_DIR": "/nowhere"})
    found.sessions.mkdir(parents=True)
    return found


def begun(here: Paths, name: str, *events: Event, mode: Mode = Mode.SDK) -> SessionId:
    session = SessionId(f"s{name}")
    here.folder(session).mkdir()
    launch = Launch(session=session, name=name, agent="scripted", mode=mode, backend="x", workdir="/")
    EventLog(here.fleet_log).append(SessionCreated(at=OLD, launch=launch))
    say(here, session, *events)
    return session


def say(here: Paths, session: SessionId, *events: Event) -> None:
    for event in events:
        EventLog(here.log(session)).append(fitted(event, here.blobs(session)))


def printed(here: Paths, session: SessionId, *lines: str, shown: tuple[str, ...] = ()) -> TerminalRecord:
    record = TerminalRecord(here.record(session), 1_000_000)
    record.open(0)
    record.append(lines, OLD)
    record.show(shown, OLD + 1)
    return record


def said(text: str, at: float = OLD) -> MessageWritten:
    return MessageWritten(at=at, text=text)


def settle(here: Paths) -> None:
    """Make every file as old as its facts are, so that the index takes all of it."""
    for path in here.sessions.rglob("*"):
        os.utime(path, (OLD, OLD))


def found(here: Paths, words: str, *, context: int = 0, most: int | None = None, **how: bool) -> list[SearchHit]:
    there = search(here, list_sessions(here), SearchPattern(words, **how), context=context, most=most)
    return [hit for each in there for hit in each.hits]


def lines(here: Paths, words: str, **how: bool) -> list[str]:
    return sorted(hit.line for hit in found(here, words, **how))


def without(here: Paths) -> None:
    """Nobody ever made an index."""


def with_index(here: Paths) -> None:
    settle(here)
    update_all(here)
    assert here.search_index.stat().st_size
    assert 0o600 == here.search_index.stat().st_mode & 0o777


def with_one_that_is_behind(here: Paths) -> None:
    """Something was added since."""
    with_index(here)
    say(here, SessionId("sone"), said("added since"))


def broken(here: Paths) -> None:
    with_index(here)
    here.search_index.write_bytes(b"no database" * 1000)


def of_another_kasmon(here: Paths) -> None:
    with_index(here)
    with sqlite3.connect(here.search_index) as database:
        database.execute("DELETE FROM stretch")
        database.execute("PRAGMA user_version=7")


INDEXES = (without, with_index, with_one_that_is_behind, broken, of_another_kasmon)


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.__name__)
def test_the_matches_are_the_same_for_any_state_of_the_index(here: Paths, index: Callable[[Paths], None]) -> None:
    begun(here, "one", said("the auth token\nis refused"), TurnStarted(at=OLD, prompt="mend AUTH"))
    two = begun(here, "two", mode=Mode.TMUX)
    printed(here, two, "make: auth.c", "ok", shown=("auth: done",))
    index(here)

    assert ["auth: done", "make: auth.c", "the auth token"] == lines(here, "auth")
    assert ["auth: done", "make: auth.c", "mend AUTH", "the auth token"] == lines(here, "AuTH", ignores_case=True)
    assert ["is refused"] == lines(here, "re[f]used$", is_regex=True)
    assert [] == lines(here, "nowhere")


HOSTILE = ('"', '""" OR ""', "a AND b", "NEAR(a b)", "auth*", "^x", "{text}: y", "%", "_", "-c", "(", "\\", "ab\"c'd")


@pytest.mark.parametrize("words", HOSTILE)
def test_a_search_text_has_no_syntax(here: Paths, words: str) -> None:
    begun(here, "one", said(f"here {words} stands"), said("a and b, auth and text: y, x % _ c ab"))
    with_index(here)

    assert [f"here {words} stands"] == [line for line in lines(here, words) if line.startswith("here")]
    assert all(words in line for line in lines(here, words))


@pytest.mark.parametrize(
    "words",
    ['say "no"', '"""', "NEAR(a, b)", "auth*", "--max", "text:b", "{text}: y", "^x + y", "a AND NOT b", "'; DROP"],
)
def test_the_index_takes_every_word_unchanged(here: Paths, words: str) -> None:
    """A word that it took for its own syntax would only be found slowly: nobody would see it."""
    holds = begun(here, "one", said(f"here {words} stands"))
    other = begun(here, "two", said("nothing of it"))
    with_index(here)
    lookup = SearchLookup(here.search_index, SearchPattern(words).grams)

    assert all(lookup.ranges(source) for source in sources(here, holds))
    assert [[]] == [lookup.ranges(source) for source in sources(here, other)]


@pytest.mark.parametrize(("words", "is_regex"), [("", False), ("a\nb", False), ("a(", True)])
def test_an_impossible_search_is_reported(words: str, is_regex: bool) -> None:
    with pytest.raises(UsageError):
        SearchPattern(words, is_regex=is_regex)


@pytest.mark.parametrize("index", [without, with_index], ids=["without", "with an index"])
def test_every_script_every_escape_and_every_colour_is_matched(here: Paths, index: Callable[[Paths], None]) -> None:
    texts = ("漢字を探す", "Größe ÄNDERN", 'say "hi" \\ tab\tend', "plain \x1b[31mre\x1b[0md word", "smile 👩‍💻 here")
    begun(here, "one", *map(said, texts))
    begun(
        here, "two", ToolStarted(at=OLD, call="c", tool="Bash", title="run", input='{"command":"echo \\"h\\u00e9\\""}')
    )
    index(here)

    for words in ("漢字を", "を探", "Größe", '"hi" \\ tab\tend', "plain red word", "👩‍💻", 'echo "hé"'):
        assert 1 == len(found(here, words)), words
    assert 1 == len(found(here, "größe ändern", ignores_case=True))


def test_a_match_has_its_position_and_its_context(here: Paths) -> None:
    log = EventLog(here.log(begun(here, "one", said("one\ntwo\nthree\nfour"))))
    [(line, _)] = log.lines()
    start = log.size()
    say(here, SessionId("sone"), said("1\ntwo!\n3", OLD + 5))
    first, second = found(here, "two", context=1)

    assert (0, ("one",), ("three",), "said", "transcript") == (
        first.position,
        first.before,
        first.after,
        first.what,
        first.source,
    )
    assert (start, OLD + 5, 0, 3) == (second.position, second.at, second.start, second.end)
    assert line


def test_a_match_in_a_terminal_has_its_line_number_across_separate_writes(here: Paths) -> None:
    session = begun(here, "one", mode=Mode.TMUX)
    printed(here, session, *(f"line {number}" for number in range(20))).append(["the end"], OLD + 2)
    [hit] = found(here, "the end", context=2)

    assert ("terminal", 20, OLD + 2, ("line 18", "line 19")) == (hit.source, hit.position, hit.at, hit.before)


def test_a_text_too_long_for_the_log_is_found_once_with_the_time_of_its_event(here: Paths) -> None:
    long = "\n".join(f"row {number} of the output" for number in range(20_000))
    session = begun(here, "one", said("before"), ToolFinished(at=OLD + 7, call="c", output=long))
    say(here, session, ThoughtWritten(at=OLD + 8, text=f"{long}\nand a thought"))
    [hit] = found(here, "row 19999 of")[:1]

    assert OLD + 7 == hit.at
    assert hit.position > 0
    assert 2 == len(found(here, "row 17 of the"))
    assert [OLD + 8] == [hit.at for hit in found(here, "and a thought")]


def test_prompts_of_terminals_are_found_though_no_turn_contains_them(here: Paths) -> None:
    receipt = Receipt(id=ReceiptId("r"), session=SessionId("sone"), state=ReceiptState.TYPED, at=OLD, text="tidy")
    begun(here, "one", ReceiptChanged(at=OLD, receipt=receipt, prompt="tidy up"), mode=Mode.TMUX)

    assert ["tidy up"] == lines(here, "tidy")


def test_a_secret_of_the_session_is_neither_found_nor_shown(here: Paths) -> None:
    session = begun(here, "one", said("before\nthe key is hunter2hunter2 now"))
    here.environment(session).write_bytes(b"API_KEY=hunter2hunter2")

    assert [] == found(here, "hunter2")
    assert ["the key is ⟨hidden: 14 characters⟩ now"] == lines(here, "the key")
    assert ("the key is ⟨hidden: 14 characters⟩ now",) == found(here, "before", context=1)[0].after


def test_text_of_removed_sessions_is_not_found(here: Paths) -> None:
    begun(here, "one", said("auth"))
    two = begun(here, "two", said("auth"))
    with_index(here)
    EventLog(here.fleet_log).append(SessionForgotten(at=OLD, session=two))
    update_all(here)

    assert ["sone"] == [hit.session for hit in found(here, "auth")]
    with sqlite3.connect(here.search_index) as database:
        assert [("sone",)] == database.execute("SELECT session FROM source").fetchall()


def test_the_search_ends_at_the_newest_matches_on_request(here: Paths) -> None:
    begun(here, "one", *(said(f"step {number}", OLD + number) for number in range(5000)))
    [there] = search(here, list_sessions(here), SearchPattern("step"), most=3)

    assert ["step 4997", "step 4998", "step 4999"] == [hit.line for hit in there.hits]
    assert there.more


def test_a_search_for_the_newest_matches_does_not_read_older_events(here: Paths) -> None:
    session = begun(here, "one", *(said(f"step {number} and\nstep on", OLD + number) for number in range(500)))
    [source] = sources(here, session)
    [block] = blocks(source, 0, source.size)
    there = hits(source, block, SearchQuery(SearchPattern("step"), most=4), in_terminal=False)

    assert ["step 497 and", "step on", "step 498 and", "step on", "step 499 and", "step on"] == [h.line for h in there]


def test_a_log_of_which_nothing_was_indexed_can_leave_the_index(here: Paths) -> None:
    """Its writer died in its first line."""
    session = begun(here, "one")
    here.log(session).write_bytes(b'{"torn')
    settle(here)
    index = SearchIndex(here.search_index)
    update_some(index, SourceCache(here), list_sessions(here), 1 << 24)

    index.retain_only([])

    assert [] == lines(here, "torn")
    index.close()


def test_a_cancelled_search_reads_no_further(here: Paths) -> None:
    for name in ("one", "two"):
        begun(here, name, said("auth"))

    assert [] == [*search(here, list_sessions(here), SearchPattern("auth"), stopped=lambda: True)]


def test_an_unreadable_session_is_reported_and_the_others_are_searched(here: Paths) -> None:
    begun(here, "one", said("auth"))
    here.log(SessionId("sone")).unlink()
    here.log(SessionId("sone")).mkdir()
    begun(here, "two", said("auth"))
    there = {each.session.name: each for each in search(here, list_sessions(here), SearchPattern("auth"))}

    assert "not a regular file" in there["one"].problem
    assert 1 == len(there["two"].hits)


def test_the_index_selects_the_segments_that_may_match_and_the_new_events(here: Paths) -> None:
    session = begun(here, "one")
    log = here.log(session)
    filling = [msgspec.json.encode(said(f"nothing to see {number}")) for number in range(20_000)]
    needle = msgspec.json.encode(said("xyzzy"))
    log.write_bytes(b"\n".join([*filling[:10_000], needle, *filling[10_000:], b""]))
    with_index(here)
    [source] = sources(here, session)
    ranges = SearchLookup(here.search_index, SearchPattern("xyzzy").grams).ranges(source)

    assert source.size > 5 * STRETCH_BYTES
    assert [STRETCH_BYTES] >= [end - start for start, end in ranges]
    assert 1 == len(found(here, "xyzzy"))
    say(here, session, said("xyzzy again"))
    assert 2 == len(found(here, "xyzzy"))


def test_a_replaced_log_is_searched_again(here: Paths) -> None:
    session = begun(here, "one", *(said(f"old {number}") for number in range(50)))
    with_index(here)
    here.log(session).write_bytes(msgspec.json.encode(said("new")) + b"\n")

    assert ["new"] == lines(here, "new")
    settle(here)
    update_all(here)
    assert ["new"] == lines(here, "new")
    assert [] == lines(here, "old")


def test_a_text_that_was_also_logged_in_parts_is_found_once(here: Paths) -> None:
    parts = [PartialTextWritten(at=OLD, text=text) for text in ("needle in ", "the hay")]
    begun(here, "one", *parts, said("needle in the hay"))
    [there] = search(here, list_sessions(here), SearchPattern("needle"))

    assert ["needle in the hay"] == [hit.line for hit in there.hits]
