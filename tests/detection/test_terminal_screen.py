"""Captured rows as text and looks: nothing else of what a program printed is left."""

import pytest

from kasmon.detection.terminal_screen import PLAIN, CellStyle, captured, cells, shown


def looks(row: str) -> list[CellStyle]:
    """How each character of the first row looks."""
    seen = captured(row).rows[0]
    return [seen.style_at(at) for at in range(len(seen.text))]


@pytest.mark.parametrize(
    ("codes", "look"),
    [
        ("", PLAIN),
        ("1", CellStyle(bold=True)),
        ("2", CellStyle(faint=True)),
        ("7", CellStyle(reverse=True)),
        ("1;2;22", PLAIN),
        ("7;27", PLAIN),
        ("31", CellStyle(foreground="31")),
        ("90", CellStyle(foreground="90", faint=True)),
        ("38;5;246", CellStyle(foreground="5;246", faint=True)),
        ("38;5;8", CellStyle(foreground="5;8", faint=True)),
        ("38;5;255", CellStyle(foreground="5;255")),
        ("38;2;136;136;136", CellStyle(foreground="2;136;136;136", faint=True)),
        ("38:2:255:0:0", CellStyle(foreground="2;255;0;0")),
        ("48;5;234", CellStyle(background="5;234")),
        ("2;38;5;246;39", CellStyle(faint=True)),
        ("38;5;246;39", PLAIN),
        ("31;44;0", PLAIN),
        ("99999;;1", CellStyle(bold=True)),
    ],
)
def test_a_sequence_sets_the_style_of_the_following_text(codes: str, look: CellStyle) -> None:
    assert [look] == looks(f"\x1b[{codes}mx")


def test_a_style_continues_in_the_next_row_of_a_capture() -> None:
    rows = captured("a\x1b[2mb\nc\x1b[0md\n").rows

    assert [False, True] == [rows[0].style_at(at).faint for at in (0, 1)]
    assert [True, False] == [rows[1].style_at(at).faint for at in (0, 1)]


def test_separate_rows_begin_without_a_style() -> None:
    assert PLAIN == shown(["a\x1b[2mb", "c"]).rows[1].style_at(0)


def test_line_drawing_becomes_lines_and_a_hard_space_a_space() -> None:
    assert "┌─┐ q" == captured("\x0elqk\x0f q").rows[0].text
    assert "❯ x" == captured("❯\u00a0x").rows[0].text


def test_only_the_lowest_rows_of_a_high_screen_are_read_and_the_cursor_stays_in_its_row() -> None:
    shot = shown([str(at) for at in range(300)], cursor=(0, 299))

    assert 200 == len(shot.rows)
    assert "299" == shot.rows[shot.cursor_row or 0].text


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("é漢", 3)])
def test_the_width_of_a_text_is_counted_in_cells(text: str, width: int) -> None:
    assert width == cells(text)


def test_without_a_cursor_it_stands_in_the_last_row_with_text_and_a_title_is_clean_and_short() -> None:
    assert 1 == shown(["a", "b", "", ""]).cursor_row
    assert shown(["", ""]).cursor_row is None
    assert "evil" == captured("", "\x1b]52;c;x\x07evil\x07").title
    assert 256 == len(captured("", "x" * 10_000).title)
