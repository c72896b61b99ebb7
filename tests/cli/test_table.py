"""The table of `ls` for people: aligned by what a terminal shows, harmless, with a shape and a word for each state."""

import msgspec
import pytest

from kasmon.commands.table import GLYPHS, age, cut, summary, table
from kasmon.model.command import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.permission import AskKind, SessionId
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.supervisor.names import width_cells

NOW = 1_700_000_000.0


def session(name: str, state: SessionState = SessionState.IDLE, **more: object) -> Session:
    plain = Session(
        id=SessionId(f"{name[:3]:x<8}"), name=name, agent="claude", state=state, since=NOW - 90, generation=1
    )
    return msgspec.structs.replace(plain, **more)


def test_columns_stand_under_each_other_whatever_the_names_are_written_in() -> None:
    names = ["plain", "日本語の名前", "übergrößen", "👩‍🔬 lab", "ｗｉｄｅ"]

    lines = table([session(name) for name in names], NOW)

    places = {width_cells(line[: line.index("claude")]) for line in lines[1:]}
    assert 1 == len(places)
    assert lines[0].index("AGENT") in places


def test_a_narrow_terminal_cuts_lines_and_says_so() -> None:
    lines = table([session("x" * 80, last_line="日本" * 80)], NOW, width=60)

    assert all(width_cells(line) <= 60 for line in lines)
    assert lines[1].endswith("…")
    assert all(line.isascii() for line in table([session("x")], NOW, utf8=False))


@pytest.mark.parametrize("width", range(1, 8))
def test_cutting_never_takes_more_cells_than_there_are(width: int) -> None:
    for text in ("abcdefghi", "日本語日本語", "a日b本c語d", "é" * 9):
        assert width_cells(cut(text, width)) <= width


def test_those_that_need_a_person_stand_first_and_children_under_their_parent() -> None:
    sessions = [
        session("done", SessionState.ENDED, exit_code=0),
        session("busy", SessionState.WORKING, mode=Mode.SDK, wave=2, task=1, peers=3),
        session("child", SessionState.WORKING, parent=SessionId("asksxxxx")[:8]),
        session("asks", SessionState.ASKING, asking=AskKind.PERMISSION),
        session("crash", SessionState.ENDED, exit_code=3),
        session("odd", SessionState.UNSURE, unsure_why="no signals"),
    ]
    sessions[2] = msgspec.structs.replace(sessions[2], parent=sessions[3].id)

    rows = table(sessions, NOW)[1:]

    assert ["asks", "child", "crash", "odd", "busy", "done"] == [
        next(name for name in ("asks", "child", "crash", "odd", "busy", "done") if f" {name} " in row) for row in rows
    ]
    assert "◆ asking (permission)" in rows[0]
    assert "└ child" in rows[1]
    assert "✕ ended (exit 3)" in rows[2]
    assert "no signals" in rows[3]
    assert "2.1 of 3" in rows[4]
    assert "1m" in rows[4]


def test_a_state_is_a_shape_and_a_word_the_same_as_on_the_dashboard() -> None:
    from kasmon.tui import look

    assert look.GLYPHS == GLYPHS
    assert {state.value for state in SessionState} | {"crashed"} == set(GLYPHS)


def test_the_fleet_in_one_line() -> None:
    fleet = Fleet(sessions=(session("one"), session("two")), at=NOW)

    assert "2 sessions · 2 idle" == summary(fleet)
    assert "2 sessions, 2 idle" == summary(fleet, utf8=False)


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")])
def test_an_age_is_told_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert shown == age(seconds)
