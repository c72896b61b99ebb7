"""What a terminal has printed, to be read: wrapped, searched, selected, copied."""

from rich.cells import cell_len

from kasmon.tui.terminal.scrollback.buffer import BufferMatch, BufferPosition, BufferRow, ScrollbackBuffer

LINES = ("one two three", "\x1b[31mred\x1b[m and \x1b[0;1mbold  ", "", "漢字漢字漢字 end", "https://a.example/x")


def wrapped(width: int, *lines: str) -> ScrollbackBuffer:
    buffer = ScrollbackBuffer(lines or LINES)
    buffer.wrap(width)
    return buffer


def test_lines_are_wrapped_by_cells() -> None:
    buffer = wrapped(5, "abcdefgh", "", "漢字漢x")

    assert [
        BufferRow(0, 0, 5),
        BufferRow(0, 5, 8),
        BufferRow(1, 0, 0),
        BufferRow(2, 0, 2),
        BufferRow(2, 2, 4),
    ] == buffer.rows
    assert ["abcde", "fgh", "", "漢字", "漢x"] == [buffer.strip(row).text for row in range(5)]


def test_no_row_is_wider_than_the_screen_and_none_loses_a_character() -> None:
    for width in range(2, 30):
        buffer = wrapped(width)
        assert all(buffer.strip(row).cell_length <= width for row in range(len(buffer.rows)))
        for line, text in enumerate(buffer.texts):
            assert text == "".join(text[row.start : row.end] for row in buffer.rows if row.line == line)


def test_colours_are_kept_in_each_row_and_links_are_known_however_a_line_is_wrapped() -> None:
    [segment] = [segment for segment in wrapped(3).strip(5) if segment.text == "red"]
    assert segment.style is not None
    assert segment.style.color is not None

    assert ["https://a.example/x"] == [link.address for link in wrapped(6).links(4)]


def test_a_cell_maps_to_its_character_and_back() -> None:
    buffer = wrapped(5)
    for row, where in enumerate(buffer.rows):
        for at in range(where.start, where.end):
            spot = BufferPosition(where.line, at)
            assert row == buffer.row_of(spot)
            assert spot == buffer.spot(row, buffer.cell_of(spot))
            assert spot == buffer.spot(row, buffer.cell_of(spot) + cell_len(buffer.texts[where.line][at]) - 1)


def test_matches_are_found_in_any_case_and_across_wrapped_rows() -> None:
    assert [BufferMatch(0, 4, 7)] == wrapped(5).find("TWO")
    assert [BufferMatch(1, 0, 7)] == wrapped(2).find("red and")
    assert [] == wrapped(5).find("") == wrapped(5).find("[")


def test_copied_text_has_no_added_breaks_or_blanks() -> None:
    buffer = wrapped(4)

    assert "two three\nred and bold\n\n漢字" == buffer.between(BufferPosition(3, 2), BufferPosition(0, 4))
    assert "bold" == buffer.between(BufferPosition(1, 8), BufferPosition(1, 14))


def test_the_scrollback_of_a_silent_terminal_can_be_opened() -> None:
    buffer = ScrollbackBuffer(())
    buffer.wrap(80)

    assert ([BufferRow(0, 0, 0)], []) == (buffer.rows, buffer.find("x"))
