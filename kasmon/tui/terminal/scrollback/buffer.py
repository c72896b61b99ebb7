"""The whole scrollback of a terminal: wrapped to any width, searched, selected. Pure.

Lines come unwrapped: what the terminal had wrapped is one line again, so copied text has no additional line breaks.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, split_graphemes
from textual.strip import Strip

from kasmon.model.transcript.markdown.links import LinkAddress, links
from kasmon.terminal_text.styles import STYLE_CHANGE
from kasmon.tui.terminal.sgr import strip_of

MOST_FOUND: Final = 10_000
"""At most so many matches are returned."""


class BufferPosition(NamedTuple):
    """A position between two characters: a line, and a character of it."""

    line: int
    at: int


class BufferMatch(NamedTuple):
    """A match: a line, and its characters from *start* to before *end*."""

    line: int
    start: int
    end: int


class BufferRow(NamedTuple):
    """The part of a line in one row: characters from *start* to before *end*."""

    line: int
    start: int
    end: int


class ScrollbackBuffer:
    """The buffer of *lines* with SGR sequences, oldest first; one empty line if there is none."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines) or ("",)
        self.texts = tuple(STYLE_CHANGE.sub("", line) for line in self.lines)
        self.rows: list[BufferRow] = []
        self._first_rows: list[int] = []
        self._strips: dict[int, Strip] = {}

    def wrap(self, width: int) -> None:
        self.rows, self._first_rows = [], []
        for line, text in enumerate(self.texts):
            self._first_rows.append(len(self.rows))
            ends = _breaks(text, max(width, 2))
            self.rows += (
                BufferRow(line, start, end) for start, end in zip((0, *ends), (*ends, len(text)), strict=True)
            )

    def row_of(self, spot: BufferPosition) -> int:
        first = self._first_rows[spot.line]
        after = self._first_rows[spot.line + 1] if spot.line + 1 < len(self._first_rows) else len(self.rows)
        return first + bisect_right([row.start for row in self.rows[first:after]], spot.at) - 1

    def cell_of(self, spot: BufferPosition) -> int:
        """Return the number of cells left of *spot* in its row."""
        return cell_len(self.texts[spot.line][self.rows[self.row_of(spot)].start : spot.at])

    def spot(self, row: int, cell: int) -> BufferPosition:
        """Return the position at *cell* of *row*, or the end of its text if that is shorter."""
        where = self.rows[min(max(row, 0), len(self.rows) - 1)]
        text, at, left = self.texts[where.line], where.start, max(cell, 0)
        if text.isascii():
            return BufferPosition(where.line, min(where.start + left, where.end))
        for start, end, width in split_graphemes(text[where.start : where.end])[0]:
            if left < width or start == end:
                break
            left, at = left - width, where.start + end
        return BufferPosition(where.line, at)

    def strip(self, row: int) -> Strip:
        """Return the cells of *row*, in the program's own colours."""
        where = self.rows[row]
        whole = self._strips.get(where.line)
        if whole is None:
            if len(self._strips) > 500:
                self._strips.clear()
            whole = self._strips[where.line] = strip_of(self.lines[where.line])
        text = self.texts[where.line]
        left = cell_len(text[: where.start])
        return whole.crop(left, left + cell_len(text[where.start : where.end]))

    def find(self, query: str) -> list[BufferMatch]:
        """Return the matches of *query*, in order; case is ignored."""
        if not query:
            return []
        pattern = re.compile(re.escape(query), re.IGNORECASE)
        found: list[BufferMatch] = []
        for line, text in enumerate(self.texts):
            found += (BufferMatch(line, *match.span()) for match in pattern.finditer(text))
            if len(found) >= MOST_FOUND:
                break
        return found[:MOST_FOUND]

    def between(self, one: BufferPosition, other: BufferPosition) -> str:
        """Return the text from the earlier to the later position, without blanks at the ends of lines."""
        first, last = min(one, other), max(one, other)
        if first.line == last.line:
            return self.texts[first.line][first.at : last.at].rstrip()
        inner = self.texts[first.line + 1 : last.line]
        return "\n".join(
            text.rstrip() for text in (self.texts[first.line][first.at :], *inner, self.texts[last.line][: last.at])
        )

    def links(self, line: int) -> list[LinkAddress]:
        return links(self.texts[line])


def _breaks(text: str, width: int) -> list[int]:
    """Return the characters before which *text* is broken, so that no row is wider than *width* cells."""
    if text.isascii():
        return [*range(width, len(text), width)]
    if cell_len(text) <= width:
        return []
    breaks: list[int] = []
    used = 0
    for start, _, size in split_graphemes(text)[0]:
        if used + size > width and start:
            breaks.append(start)
            used = 0
        used += size
    return breaks
