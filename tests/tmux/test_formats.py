"""Lists and answers of tmux, read."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.tmux.formats import (
    CreatedPane,
    PaneFacts,
    PaneText,
    ScreenFacts,
    distinct,
    orphans,
    read_pane,
    read_pane_facts,
    read_screen,
    read_text,
)

LINE = b"0|%3|@2|$1|4711|1|7||0|120|40|0|1795301904|kabcdef2|8d650a00e9924f2b"


def facts(pane: str, window: str = "@1", *, in_hub: bool = False) -> PaneFacts:
    line = f"{int(in_hub)}|{pane}|{window}|$1|1|0|||0|80|24|0|0||".encode()
    read = read_pane_facts(line)
    assert read is not None
    return read


def test_a_line_of_a_list_is_a_pane() -> None:
    pane = read_pane_facts(LINE)

    assert pane is not None
    assert ("%3", "@2", "$1", 4711) == (pane.pane_id, pane.window_id, pane.session_id, pane.pid)
    assert (True, 7, None) == (pane.is_dead, pane.status, pane.signal)
    assert ("kabcdef2", "8d650a00e9924f2b") == (pane.kasmon_id, pane.ready)


@pytest.mark.parametrize(("said", "number"), [(b"9", 9), (b"KILL", signal.SIGKILL), (b"", None), (b"NOSUCH", None)])
def test_a_signal_may_come_as_number_or_name(said: bytes, number: int | None) -> None:
    pane = read_pane_facts(LINE.replace(b"|7||", b"||" + said + b"|"))

    assert pane is not None
    assert number == pane.signal


@pytest.mark.parametrize("line", [b"", b"|" * 14, b"no panes", LINE[:-20], LINE + b"|x"], ids=repr)
def test_a_malformed_line_is_left_out(line: bytes) -> None:
    assert read_pane_facts(line) is None
    assert read_pane(line) is None


@given(st.binary(max_size=60))
def test_an_answer_of_any_bytes_is_read_or_left_out(answer: bytes) -> None:
    assert isinstance(read_pane_facts(answer), PaneFacts | None)
    assert isinstance(read_pane(answer), CreatedPane | None)
    assert isinstance(read_screen(answer), ScreenFacts | None)
    assert isinstance(read_text(answer), PaneText)


def test_a_missing_pane_has_no_screen() -> None:
    assert read_screen(b"|" * 17) is None


def test_each_pane_counts_once_as_its_own_session_shows_it() -> None:
    panes = [facts("%10"), facts("%2"), facts("%2", in_hub=True), facts("%0", "@0", in_hub=True)]

    assert ["%2", "%10"] == [pane.pane_id for pane in distinct(panes)]


def test_a_window_that_only_the_hub_has_is_an_orphan_but_its_own_is_not() -> None:
    panes = [
        facts("%0", "@0", in_hub=True),
        facts("%1", "@1", in_hub=True),
        facts("%1"),
        facts("%2", "@2", in_hub=True),
    ]

    assert ["@2"] == orphans(panes, own_window="@0")


@given(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=20)] * 3))
def test_texts_are_preserved_with_any_content(texts: tuple[str, str, str]) -> None:
    answer = ",".join(f"{len(text.encode())}:{text}" for text in texts).encode()

    assert PaneText(title=texts[0], workdir=texts[1], command=texts[2]) == read_text(answer)


def test_a_text_whose_length_is_wrong_is_dropped_and_the_rest_of_the_pane_is_not() -> None:
    """tmux 3.4 and 3.5 write controls in octal but count them as one."""
    assert PaneText(title="ok", workdir="", command="") == read_text(b"2:ok,3:a\\011b,2:sh")
