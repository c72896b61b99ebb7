"""The table of `ls` for people: aligned by what a terminal shows, harmless, with a shape and a word for each state."""

from typing import Any

import msgspec
import pytest

from kasmon.cli.ls import chosen
from kasmon.cli.output.json_objects import session_object
from kasmon.cli.output.table import cut, fallbacks, summary, table
from kasmon.cli.send import table as receipt_table
from kasmon.cli.show import described
from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import age
from kasmon.model.permission import RequestKind, SessionId
from kasmon.model.session import Session, Tokens
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sessions.names import width_cells

NOW = 1_700_000_000.0
ANY = frozenset(SessionState)
PROTOCOL = "amp has no structured protocol"


def session(name: str, state: SessionState = SessionState.IDLE, **more: object) -> Session:
    plain = Session(
        id=SessionId(f"{name[:3]:x<8}"), name=name, agent="claude", state=state, since=NOW - 90, generation=1
    )
    return msgspec.structs.replace(plain, **more)


def test_columns_are_aligned_in_any_script() -> None:
    names = ["plain", "日本語の名前", "übergrößen", "👩‍🔬 lab", "ｗｉｄｅ"]

    lines = table([session(name) for name in names], NOW)

    paths = {width_cells(line[: line.index("claude")]) for line in lines[1:]}
    assert 1 == len(paths)
    assert lines[0].index("AGENT") in paths


def test_the_machine_has_a_column_only_where_one_is_another() -> None:
    here, away = session("docs"), session("train", via="gpu-1")
    cut_off = session("arm", SessionState.UNSURE, via="lab", source="link", unsure_why="lab is unreachable: no route")

    lines = [line.split() for line in table([here, away, cut_off], NOW)]

    assert "MACHINE" not in table([here], NOW)[0]
    assert {"docs": "-", "train": "gpu-1", "arm": "lab"} == {cells[2]: cells[3] for cells in lines[1:]}
    assert "unreachable since 22:11 (1 min)" in table([cut_off], NOW)[1]
    assert ["docs"] == [each.name for each in chosen(Fleet(sessions=(here, away)), ANY, None, "local")]


def test_a_narrow_terminal_cuts_lines_and_reports_it() -> None:
    lines = table([session("x" * 80, last_line="日本" * 80)], NOW, width=60)

    assert all(width_cells(line) <= 60 for line in lines)
    assert lines[1].endswith("…")
    assert all(line.isascii() for line in table([session("x")], NOW, utf8=False))


@pytest.mark.parametrize("width", range(1, 8))
def test_cutting_never_takes_more_cells_than_there_are(width: int) -> None:
    for text in ("abcdefghi", "日本語日本語", "a日b本c語d", "é" * 9):
        assert width_cells(cut(text, width)) <= width


def test_sessions_that_need_the_user_come_first_and_children_below_their_parent() -> None:
    sessions = [
        session("done", SessionState.ENDED, exit_code=0),
        session("busy", SessionState.WORKING, mode=Mode.SDK, wave=2, task=1, peers=3),
        session("child", SessionState.WORKING, parent=SessionId("asksxxxx")[:8]),
        session("asks", SessionState.ASKING, asking=RequestKind.PERMISSION),
        session("crash", SessionState.ENDED, exit_code=3),
        session("odd", SessionState.UNSURE, unsure_why="no status detection"),
    ]
    sessions[2] = msgspec.structs.replace(sessions[2], parent=sessions[3].id)

    rows = table(sessions, NOW)[1:]

    assert ["asks", "child", "crash", "odd", "busy", "done"] == [
        next(name for name in ("asks", "child", "crash", "odd", "busy", "done") if f" {name} " in row) for row in rows
    ]
    assert "◆ asking (permission)" in rows[0]
    assert "└ child" in rows[1]
    assert "✕ ended (exit 3)" in rows[2]
    assert "no status detection" in rows[3]
    assert "2.1 of 3" in rows[4]
    assert "1m" in rows[4]


def test_the_fleet_in_one_line() -> None:
    fleet = Fleet(sessions=(session("one"), session("two")), at=NOW)

    assert "2 sessions · 2 idle" == summary(fleet)
    assert "2 sessions, 2 idle" == summary(fleet, utf8=False)


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")])
def test_an_age_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert shown == age(seconds)


def test_a_session_in_another_mode_than_requested_gives_the_reason_below_the_table() -> None:
    sessions = [
        session("amp", fallback=PROTOCOL),
        session("over", SessionState.ENDED, fallback="long ago"),
        session("free", fallback="no protocol", bypassing=True),
        session("plain"),
    ]
    rows = table(sessions, NOW)

    assert "tmux (not sdk)" in next(row for row in rows if " amp " in row)
    assert "tmux (not sdk, bypassing)" in next(row for row in rows if " free " in row)
    assert "not sdk" not in next(row for row in rows if " plain " in row)
    assert [
        f"{name} runs in tmux instead of sdk: {why}." for name, why in (("amp", PROTOCOL), ("free", "no protocol"))
    ] == (fallbacks(sessions))


@pytest.mark.parametrize(("generation", "words"), [(0, "failed"), (1, "failed")])
def test_an_end_without_a_witness_is_shown_by_its_reason(generation: int, words: str) -> None:
    ended = session("docs", SessionState.ENDED, generation=generation, end_why="claude has no login", last_line="hello")

    [row] = table([ended], NOW)[1:]
    assert f"✕ ended ({words})" in row
    assert row.endswith("claude has no login")
    assert "None" not in row


def test_an_unknown_value_is_null_and_an_ended_session_has_no_process() -> None:
    def told(**figures: Any) -> object:
        return session_object(session("a", tokens=Tokens(**figures)))["tokens"]

    assert {"input": None, "output": None, "context": 900, "limit": 1000} == told(context=900, limit=1000)
    assert {"input": 5, "output": 0, "context": None, "limit": None} == told(input=5)
    assert "- in, - out, 900 in context" in "\n".join(described(session("a", tokens=Tokens(context=900)), NOW))
    assert (7, None) == (
        session_object(session("a", pid=7))["pid"],
        session_object(session("a", SessionState.ENDED, pid=7))["pid"],
    )


def test_a_broadcast_has_a_line_for_each_session_with_its_result() -> None:
    sessions = [session("fix-auth"), session("数")]
    receipts = [
        Receipt(id=ReceiptId("fix-auth-r1"), session=sessions[0].id, state=ReceiptState.FINISHED, exit_code=7),
        Receipt(id=ReceiptId(""), session=sessions[1].id, state=ReceiptState.REFUSED, reason="it is asking"),
    ]

    assert [
        "fix-auth  fix-auth-r1   finished with exit code 7",
        "数        -             refused, it is asking",
    ] == receipt_table(sessions, receipts)
