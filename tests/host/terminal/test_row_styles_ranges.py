"""Which lines of a buffer a range means."""

import pytest

from kasmon.host.rpc.frames import ReadTerminal
from kasmon.host.terminal.row_styles import bounds, lines, wanted
from kasmon.model.permission import SessionId

BUFFER = [b"zero", b"one  ", b"", b"\x1b[31mthree", b"four", b"", b"   "]


def read(
    start: int | None = None, end: int | None = None, *, screen_and: int | None = None, ansi: bool = False
) -> ReadTerminal:
    return ReadTerminal(n=1, session=SessionId("abcdefgh"), start=start, end=end, screen_and=screen_and, ansi=ansi)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, (0, 4)),
        (0, 0, (0, 0)),
        (1, None, (1, 4)),
        (None, 2, (0, 2)),
        (-2, None, (3, 4)),
        (None, -1, (0, 4)),
        (-3, -2, (2, 3)),
        (-99, None, (0, 4)),
        (2, 99, (2, 4)),
    ],
)
def test_a_range_counts_from_the_beginning_or_the_end_and_includes_both(
    start: int | None, end: int | None, expected: tuple[int, int]
) -> None:
    assert expected == bounds(5, start, end)


@pytest.mark.parametrize(("start", "end"), [(3, 1), (9, None), (None, -99), (-1, -3)])
def test_a_range_without_lines_is_empty(start: int | None, end: int | None) -> None:
    assert () == lines(BUFFER, read(start, end))


def test_lines_are_cleaned_without_blank_rows_at_the_end_and_with_styles_stand_alone() -> None:
    assert ("zero", "one", "", "three", "four") == lines(BUFFER, read())
    assert ("\x1b[0;31mthree\x1b[m", "\x1b[0;31mfour\x1b[m") == lines(BUFFER, read(-2, ansi=True))


@pytest.mark.parametrize(
    ("printed", "read_as"),
    [
        ("\x1b]8;;https://evil.example/x\x1b\\https://good.example\x1b]8;;\x1b\\!", "https://good.example <https://evil.example/x>!"),
        ("\x1b]8;id=1;https://a.example\x07docs\x1b]8;;\x07 and", "docs <https://a.example> and"),
        ("\x1b]8;;https://a.example\x1b\\https://a.example\x1b]8;;\x1b\\", "https://a.example"),
        ("\x1b]8;;https://a.example\x1b\\wrap\x1b]8;;\x1b\\\x1b]8;;https://a.example\x1b\\ped\x1b]8;;\x1b\\", "wrapped <https://a.example>"),
        ("\x1b]8;;https://a.example\x1b\\a\x1b]8;;https://b.example\x1b\\b\x1b]8;;\x1b\\", "a <https://a.example>b <https://b.example>"),
        ("\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]8;;https://a.\u202eexample/ /\x1b\\click\x1b]8;;\x1b\\", "click <https://a.\ufffdexample//>"),
        ("\x1b]8;;https://a.example\x1b\\never closed", "never closed <https://a.example>"),
    ],
)  # fmt: skip
def test_the_target_of_a_link_follows_its_label_whatever_that_contains(printed: str, read_as: str) -> None:
    assert (read_as,) == lines([printed.encode()], read(ansi=True))


def test_the_capture_has_the_screen_and_some_lines_above_it() -> None:
    assert "capture-pane -p -J -S -50 -t %1" == wanted("%1", read(screen_and=50)).line
    assert "capture-pane -p -e -J -S - -t %1" == wanted("%1", read(ansi=True)).line
