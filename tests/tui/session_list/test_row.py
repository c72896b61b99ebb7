"""One line of the list: what stands in it, and that it fits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.strip import Strip

from kasmon.model.commands import Mode
from kasmon.model.formatting import GLYPHS
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.session_list.order import SessionRow, SortOrder
from kasmon.tui.session_list.row import GAP, RowContent, columns, empty_columns, header, moments, row
from kasmon.tui.theme.look import MARKS, ThemeStyles, age, count, ending, evidence, money, news, state_name
from kasmon.tui.theme.theme import DEFAULT
from tests.support.sample_fleet import NOW, asking, command, crew, ended, idle, question, session, spent, working

LOOK = ThemeStyles(shipped(DEFAULT))
PLAIN = ThemeStyles(shipped(DEFAULT), utf8=False)


def drawn(shown: Session, width: int = 160, look: ThemeStyles = LOOK, **fields: Any) -> Strip:
    return row(RowContent(shown, SessionRow(shown.id), columns(width, len(shown.name)), width, **fields), NOW, look)


def said(shown: Session) -> str:
    return "".join(text for text, _ in news(shown, NOW))


@pytest.mark.parametrize("width", [40, 52, 60, 78, 80, 88, 100, 112, 120, 136, 160, 200])
@pytest.mark.parametrize("shown", crew().sessions, ids=lambda shown: shown.id)
def test_a_row_is_exactly_as_wide_as_the_list(width: int, shown: Session) -> None:
    assert width == drawn(shown, width).cell_length
    assert width == header(columns(width, 20), width, SortOrder.NAME, LOOK).cell_length


@given(name=st.text(max_size=40), line=st.text(max_size=200), width=st.integers(40, 180))
def test_no_text_makes_a_row_wider_or_acts_on_the_terminal(name: str, line: str, width: int) -> None:
    strip = drawn(
        working("x", line, id="x") if not name else msgspec.structs.replace(working("x", line), name=name), width
    )

    assert width == strip.cell_length
    assert strip.text.isprintable() or not any(
        ord(character) < 32 or 127 <= ord(character) < 160 for character in strip.text
    )


def test_a_state_is_a_shape_and_a_word() -> None:
    for shown in crew().sessions:
        text = drawn(shown).text

        assert GLYPHS[state_name(shown)][0] in text
        assert state_name(shown) in text


def test_every_state_has_a_shape_of_its_own_in_either_alphabet() -> None:
    assert {state.value for state in SessionState} | {"crashed", "finished"} == set(GLYPHS)
    for alphabet in (0, 1):
        assert len(GLYPHS) == len({glyphs[alphabet] for glyphs in GLYPHS.values()})
    assert all(glyphs[1].isascii() for glyphs in (*GLYPHS.values(), *MARKS.values()))


def test_where_the_terminal_is_not_utf8_a_row_is_ascii() -> None:
    for shown in crew().sessions:
        assert drawn(shown, look=PLAIN, selected=True).text.isascii()


def test_a_row_shows_task_wave_and_peers() -> None:
    assert "w2 3/5" in drawn(working("docs", wave=2, task=3, peers=5)).text


@pytest.mark.parametrize(
    ("width", "names", "titles"),
    [
        (40, 14, "state name age"),
        (60, 14, "state name age activity"),
        (80, 14, "state name agent mode age activity"),
        (80, 20, "state name agent mode age activity"),
        (78, 20, "state name agent age activity"),
        (120, 14, "state name agent mode wave age activity tokens cost"),
        (160, 28, "state name agent mode wave age activity source tokens cost"),
    ],
)
def test_where_there_is_little_room_what_a_session_does_comes_before_what_it_is(
    width: int, names: int, titles: str
) -> None:
    assert titles == " ".join(column.title for column in columns(width, names))


@pytest.mark.parametrize(("key", "cells"), [("wave", 7), ("tokens", 6), ("cost", 7)])
def test_the_last_line_gets_the_room_of_a_column_that_nobody_has_anything_for(key: str, cells: int) -> None:
    every, some = columns(120, 14), columns(120, 14, without=frozenset({key}))

    assert {key} == {column.key for column in every} - {column.key for column in some}
    assert cells + GAP == next(c.width for c in some if c.key == "line") - next(
        c.width for c in every if c.key == "line"
    )


def test_a_column_is_there_as_soon_as_one_session_has_something_for_it() -> None:
    assert {"wave", "tokens", "cost"} == empty_columns([working("docs"), idle("api")])
    assert {"wave"} == empty_columns([working("docs"), spent(idle("api"), 48_200, 0.31)])
    assert not empty_columns(crew().sessions)


def test_a_row_shows_tokens_and_cost() -> None:
    text = drawn(spent(working("docs"), 48_200, 0.31)).text

    assert "48k" in text
    assert "$0.31" in text


def test_a_row_says_who_says_so_and_when() -> None:
    assert "program 4s" == evidence(working("docs", mode=Mode.TMUX), NOW)
    assert "program 4s" in drawn(working("docs", mode=Mode.TMUX), 160).text


def test_a_bypassing_session_is_marked_by_a_shape() -> None:
    assert "▲" in drawn(working("docs", bypassing=True)).text
    assert "▲" not in drawn(working("docs")).text


def test_a_fallback_is_marked_by_a_shape() -> None:
    assert "tmux↓" in drawn(working("docs", mode=Mode.TMUX, fallback="no protocol")).text


def test_several_requests_are_counted() -> None:
    shown = asking("x", command("x", "ls"), question("x", 2))

    assert "asking ×2" in drawn(shown).text


def test_an_asking_row_shows_what_is_asked() -> None:
    assert "Bash  rm -rf build && make release" == said(asking("fix-auth"))


def test_a_row_without_a_request_says_what_kind_of_asking_it_is() -> None:
    shown = session("x", SessionState.ASKING, mode=Mode.TMUX, last_line="Continue? [y/n]")

    assert "question  Continue? [y/n]" == said(shown)


def test_doubt_says_why() -> None:
    assert "unknown program: no status detection" == said(
        session("x", SessionState.UNSURE, unsure_why="unknown program: no status detection")
    )


def test_a_limit_says_how_long() -> None:
    assert "for 25m more" == said(session("x", SessionState.LIMITED, limited_until=NOW + 1510))


@pytest.mark.parametrize(
    ("shown", "how"),
    [
        (ended("x", 0), "done"),
        (ended("x", 3), "exit 3"),
        (ended("x", None, signal="SIGKILL"), "ended by SIGKILL"),
        (ended("x", 0, stopped=True), "stopped"),
        (ended("x", None), "ended, exit code unknown"),
    ],
)
def test_an_ending_is_said_exactly(shown: Session, how: str) -> None:
    assert how == ending(shown)


def test_a_crash_is_told_from_an_ending() -> None:
    assert "crashed" == state_name(ended("x", 1))
    assert "ended" == state_name(ended("x", 0))
    assert "ended" == state_name(ended("x", 1, stopped=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86400 * 9, "9d")],
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert text == age(seconds)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1234, "1.2k"), (48_200, "48k"), (999_900, "1.0M"), (1_230_000, "1.2M"), (2e9, "2.0G")],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert text == count(int(number))


def test_money_has_cents_until_it_is_much() -> None:
    assert ["$0.31", "$12.40", "$1,235"] == [money(0.31), money(12.4), money(1234.6)]


def test_a_turn_that_failed_says_so_and_why() -> None:
    failed = idle("x", "what it said before", turn_ended="error", turn_error="API Error: 400 bad\nrequest")

    assert "failed: API Error: 400 bad" in said(failed)
    assert "failed" not in said(working("x", "on it", turn_error=""))


def test_a_row_is_drawn_anew_when_a_minute_passes() -> None:
    shown = idle("x", ago=125)

    assert moments(shown, NOW) == moments(shown, NOW + 30)
    assert moments(shown, NOW) != moments(shown, NOW + 60)


def test_wide_characters_count_double() -> None:
    assert 120 == drawn(working("日本語のセッション名前はとても長い", "こんにちは" * 20), 120).cell_length
