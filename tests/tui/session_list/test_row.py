"""One line of the list: what stands in it, and that it fits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.strip import Strip

from kasmon.model.commands import Mode
from kasmon.model.fleet import totals
from kasmon.model.formatting import GLYPHS, age, ending, state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.gateway.theme_library import shipped
from kasmon.tui.session_list.layout import COLUMNS
from kasmon.tui.session_list.order import SessionRow, SortOrder
from kasmon.tui.session_list.row import GAP, RowContent, columns, empty_columns, header, moments, row
from kasmon.tui.status_bars import TopBar, TopBarContent
from kasmon.tui.theme.look import MARKS, ThemeStyles, count, evidence, money, news
from kasmon.tui.theme.theme import DEFAULT
from tests.support.bus.sample_machines import MACHINES, cut_off, there, three_machines
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
def test_no_text_makes_a_row_wider_or_has_control_characters(name: str, line: str, width: int) -> None:
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


def test_on_a_terminal_without_utf8_a_row_is_ascii() -> None:
    for shown in crew().sessions:
        assert drawn(shown, look=PLAIN, selected=True).text.isascii()


def test_tags_have_a_column_where_one_has_some_and_there_is_space() -> None:
    tagged = working("docs", tags=("api", "urgent", "x" * 30))

    def shown(width: int, tags: int) -> str:
        fitted = columns(width, tags=tags)
        return row(RowContent(tagged, SessionRow(tagged.id), fitted, width), NOW, LOOK).text

    assert "api urgent xxxx…" in shown(160, 41)
    assert "api" not in shown(160, 0)
    assert "api" not in shown(83, 41)


def test_a_proposal_to_finish_is_marked_with_the_agent_and_the_time() -> None:
    proposed = idle(
        "parser", finish_proposed="the parser is done", finish_proposed_by="lead", finish_proposed_at=NOW - 300
    )

    assert "parser »" in drawn(proposed).text
    assert "lead proposes to finish, 5m ago:  the parser is done" in said(proposed)
    assert "an agent proposes" in said(msgspec.structs.replace(proposed, finish_proposed_by=""))
    assert moments(proposed, NOW) != moments(proposed, NOW + 60)
    assert "»" not in drawn(idle("parser")).text


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
def test_in_a_narrow_row_activity_has_priority_over_description(width: int, names: int, titles: str) -> None:
    assert titles == " ".join(column.title for column in columns(width, names))


@pytest.mark.parametrize(("key", "cells"), [("wave", 7), ("tokens", 6), ("cost", 7)])
def test_the_last_line_gets_the_space_of_an_empty_column(key: str, cells: int) -> None:
    every, some = columns(120, 14), columns(120, 14, without=frozenset({key}))

    assert {key} == {column.key for column in every} - {column.key for column in some}
    assert cells + GAP == next(c.width for c in some if c.key == "line") - next(
        c.width for c in every if c.key == "line"
    )


def test_a_column_is_shown_as_soon_as_one_session_has_a_value() -> None:
    assert {"wave", "tokens", "cost"} == empty_columns([working("docs"), idle("api")])
    assert {"wave"} == empty_columns([working("docs"), spent(idle("api"), 48_200, 0.31)])
    assert not empty_columns(crew().sessions)


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (50, "state name age"),
        (70, "state name machine age activity"),
        (80, "state name machine agent age activity"),
        (120, "state name machine agent mode wave age activity tokens cost"),
    ],
)
def test_the_machine_has_a_column_only_in_a_list_with_other_machines(width: int, titles: str) -> None:
    assert titles == " ".join(column.title for column in columns(width, 14, machine=5))
    assert "machine" not in [column.title for column in columns(width, 14)]


def test_without_its_column_a_session_of_another_machine_has_a_mark_and_a_long_cut_its_day() -> None:
    assert "◎ train" in drawn(there("gpu-1", working("train")), 50).text
    assert "◎" not in drawn(working("train"), 50).text
    assert "unreachable since 2026-09-20 14:13 (1 d)" in said(cut_off("arm", ago=86_400))


def test_a_session_of_an_unreachable_machine_is_faint_and_shows_since_when() -> None:
    shown = cut_off("arm", ago=125, last_line="Closing the gripper")
    strip = row(RowContent(shown, SessionRow(shown.id), columns(160, 14, machine=5), 160), NOW, LOOK)
    colours = {segment.style.color for segment in strip if segment.text.strip() and segment.style}

    assert "? unsure" in strip.text
    assert "unreachable since 14:11 (2 min)  no sign of life" in strip.text
    assert colours <= {LOOK.style("faint").color, LOOK.style("soft").color}
    assert not any(word in strip.text for word in ("idle", "working", "gripper"))


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, "9 sessions   3 machines · 1 unreachable   ◆ 3 asking"),
        (68, "9 sessions · 1 unreachable  ◆ 3"),
        (40, "9 sessions  ◆ 3"),
    ],
)
def test_the_top_line_counts_machines_if_it_has_space(width: int, shown: str) -> None:
    sessions, bar = three_machines(), TopBar(LOOK)
    counted = TopBarContent(totals(sessions), len(sessions.sessions), len(MACHINES), 1)
    bar.set_reactive(TopBar.counted, counted)

    assert shown in bar.line(width).text
    bar.set_reactive(TopBar.counted, msgspec.structs.replace(counted, machines=0, unreachable=0))
    assert "machine" not in bar.line(120).text


def test_the_top_line_shows_the_fullest_limit_of_each_account_if_it_has_space() -> None:
    sessions, bar = three_machines(), TopBar(LOOK)
    counted = TopBarContent(totals(sessions), 9, limits=(("claude 5h", 0.92), ("codex week", 0.3)))
    bar.set_reactive(TopBar.counted, counted)

    assert "claude 5h 92%   codex week 30%" in bar.line(160).text
    assert "claude" not in bar.line(40).text
    (near,) = [segment for segment in bar.line(160) if "92%" in segment.text]
    assert LOOK.style("warn.bold", "surface") == near.style


def test_a_row_shows_tokens_and_cost_and_who_says_so_and_when() -> None:
    text = drawn(spent(working("docs"), 48_200, 0.31)).text
    assert "48k" in text
    assert "$0.31" in text

    assert "program 4s" == evidence(working("docs", mode=Mode.TMUX), NOW)
    assert "program 4s" in drawn(working("docs", mode=Mode.TMUX), 160).text


def test_a_bypassing_session_and_a_fallback_are_marked_by_a_shape() -> None:
    assert "▲" in drawn(working("docs", bypassing=True)).text
    assert "▲" not in drawn(working("docs")).text
    assert "tmux↓" in drawn(working("docs", mode=Mode.TMUX, fallback="no protocol")).text


def test_an_asking_row_counts_its_requests_and_shows_what_or_what_kind_is_asked() -> None:
    shown = asking("x", command("x", "ls"), question("x", 2))
    assert "asking ×2" in drawn(shown).text

    assert "Bash  rm -rf build && make release" == said(asking("fix-auth"))

    shown = session("x", SessionState.ASKING, mode=Mode.TMUX, last_line="Continue? [y/n]")
    assert "question  Continue? [y/n]" == said(shown)


def test_doubt_says_why_and_a_limit_says_how_long() -> None:
    assert "unknown program: no status detection" == said(
        session("x", SessionState.UNSURE, unsure_why="unknown program: no status detection")
    )

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
def test_an_end_is_shown_exactly(shown: Session, how: str) -> None:
    assert how == ending(shown)


def test_a_crash_is_distinguished_from_an_end() -> None:
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


def test_money_has_cents_until_it_is_much_and_wide_characters_count_double() -> None:
    assert ["$0.31", "$12.40", "$1,235"] == [money(0.31), money(12.4), money(1234.6)]
    assert 120 == drawn(working("日本語のセッション名前はとても長い", "こんにちは" * 20), 120).cell_length


def test_a_failed_turn_is_shown_with_its_reason() -> None:
    failed = idle("x", "what it said before", turn_ended="error", turn_error="API Error: 400 bad\nrequest")

    assert "failed: API Error: 400 bad" in said(failed)
    assert "failed" not in said(working("x", "on it", turn_error=""))


def test_a_row_is_rendered_again_when_a_minute_passes() -> None:
    shown = idle("x", ago=125)

    assert moments(shown, NOW) == moments(shown, NOW + 30)
    assert moments(shown, NOW) != moments(shown, NOW + 60)


@given(width=st.integers(40, 220), chosen=st.lists(st.sampled_from([*COLUMNS]), min_size=1, unique=True))
def test_chosen_columns_come_in_their_order_after_name_and_state_and_fit(width: int, chosen: list[str]) -> None:
    shown = columns(width, 14, branch=6, machine=6, tags=10, chosen=chosen)

    keys = [column.key for column in shown]
    assert ["state", "name"] == keys[:2]
    assert [key for key in chosen if key in keys] == keys[2:]
    assert sum(column.width + GAP for column in shown) - GAP <= width - 3
    strip = row(RowContent(working("docs"), SessionRow(SessionId("docs")), shown, width), NOW, LOOK)
    assert width == strip.cell_length
    if width >= 160:
        assert [*chosen] == keys[2:]


def test_every_column_can_be_chosen() -> None:
    usual = columns(220, 14, branch=6, machine=6, tags=10)

    assert {"state", "name", *COLUMNS} == {column.key for column in usual}
    assert COLUMNS == {column.key: column.title for column in usual if column.key in COLUMNS}
