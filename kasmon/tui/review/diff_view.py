"""The selected file's diff: scrolls, folds hunks, has a cursor and a selection; draws visible rows only."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.review.file_changes import FileChange
from kasmon.model.review.hunks import HunkedFile, list_changes, parse
from kasmon.model.review.line_pairs import LinePairs
from kasmon.model.transcript.text import Token
from kasmon.tui.review.diff_rows import NARROW, DiffRows, Entry, LineColours, Row, ShownComment
from kasmon.tui.theme.look import Background, ThemeStyles

MARGIN: Final = 2
"""Cells for the scrollbar, and for the mark of the cursor."""


class DiffView(ScrollView, can_focus=False):
    """Shows one file; before the first `show`, nothing."""

    DEFAULT_CSS = "DiffView { height: 1fr; width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    ALLOW_SELECT = False

    class Moved(Message):
        """The cursor moved, or another file is shown."""

    def __init__(self, look: ThemeStyles, unfold_key: str = "") -> None:
        super().__init__()
        self.look, self._unfold_key = look, unfold_key
        self.wants_two = False
        """Whether old and new are shown side by side, where there is space."""
        self.file = HunkedFile((), ())
        self.folded: set[int] = set()
        self.words = ""
        """What is searched; marked where it occurs."""
        self.cursor = 0
        """The index of an entry of `rows`."""
        self._anchor: int | None = None
        self._first_line: int | None = None
        """The line for the cursor, until there is a layout."""
        self._is_stale = False
        """Whether another layout for the current width was requested."""
        self._comments: Mapping[int, Sequence[ShownComment]] = {}
        self._colours, self._pairs = LineColours(self.file, ""), LinePairs(self.file)
        self.rows = DiffRows(self.file, self._colours, self._pairs, 1)

    # What is shown.

    def show(self, change: FileChange, comments: Mapping[int, Sequence[ShownComment]], line: int | None = None) -> None:
        """Show *change* with *comments*, which are below the lines with these indexes.

        *line*: the index of the line for the cursor; None for the first change, in a hunk that is not folded.
        """
        self.file = parse(change.lines)
        self.folded = {at for at, hunk in enumerate(self.file.hunks) if hunk.is_long}
        self._colours, self._pairs = LineColours(self.file, change.name), LinePairs(self.file)
        self._comments, self._anchor = comments, None
        if line is not None:
            self.folded.discard(self.file.hunk_at(line))
        self._first_line = next(iter(list_changes(self.file)), 0) if line is None else line
        if self.container_size.width:
            self.scroll_to(y=0, animate=False, immediate=True)
            self._redraw()
        if not self._colours.is_ready:
            self.run_worker(self._load_colours(self._colours), group="colours", exclusive=True)

    def search(self, query: str) -> None:
        """Mark *query* where it occurs."""
        self.words = query
        self._redraw()

    @property
    def is_two(self) -> bool:
        return self.wants_two and self._columns >= NARROW

    @property
    def has_colours(self) -> bool:
        """Whether the syntax colours of the file are shown, if its language is known."""
        return self._colours.is_ready

    def toggle_columns(self) -> None:
        self.wants_two = not self.wants_two
        self._redraw()

    # The cursor.

    @property
    def entry(self) -> Entry | None:
        """What the cursor is on; None in an empty file."""
        return self.rows.entries[self.cursor] if self.cursor < len(self.rows.entries) else None

    @property
    def line(self) -> int:
        return self.entry.line if self.entry is not None else 0

    def move(self, by: int) -> None:
        self.go_to(self.cursor + by)

    def move_pages(self, by: int) -> None:
        page = max(1, self.size.height - 1)
        row = self.rows.starts[self.cursor] if self.rows.entries else 0
        self.scroll_to(y=self.scroll_offset.y + by * page, animate=False, immediate=True)
        target = self.rows.entry_at(max(0, min(row + by * page, self.rows.count - 1)))
        self.go_to(target)

    def go_to(self, entry: int) -> None:
        """Move the cursor to this entry, and scroll so that it is visible."""
        self.cursor = max(0, min(entry, len(self.rows.entries) - 1))
        if self.rows.entries:
            top, bottom = self.rows.starts[self.cursor], self.rows.starts[self.cursor + 1]
            height, at = max(1, self.size.height), self.scroll_offset.y
            if top < at:
                self.scroll_to(y=top, animate=False, immediate=True)
            elif bottom > at + height:
                self.scroll_to(y=min(top, bottom - height), animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Moved())

    def go_to_line(self, line: int) -> None:
        """Move the cursor to the line with this index, and unfold its hunk."""
        if (hunk := self.file.hunk_at(line)) in self.folded:
            self.folded.discard(hunk)
            self._lay_out()
        self.go_to(self.rows.entry_of(line))
        if self.rows.entries:  # with some lines above it
            row = self.rows.starts[self.cursor]
            if not 0 <= row - self.scroll_offset.y - 2 < max(1, self.size.height - 4):
                self.scroll_to(y=max(0, row - self.size.height // 3), animate=False, immediate=True)

    def go_to_comment(self, name: str) -> bool:
        """Move the cursor to the comment with this id, and unfold its hunk; return whether it is on this file."""
        line = next((line for line, listed in self._comments.items() if any(each.id == name for each in listed)), None)
        if line is not None:
            self.go_to_line(line)
            self.go_to(next(at for at, entry in enumerate(self.rows.entries) if entry.comment == name))
        return line is not None

    def go_to_change(self, by: int) -> bool:
        """Move the cursor to the next (1) or the previous (-1) run of changed lines; return whether there is one."""
        line = self.line
        changes = list_changes(self.file)
        found = [at for at in changes if at > line] if by > 0 else [at for at in reversed(changes) if at < line]
        if found:
            self.go_to_line(found[0])
        return bool(found)

    def toggle_fold(self) -> None:
        if not self.file.hunks or not self.rows.entries:
            return
        hunk = self.file.hunk_at(self.line)
        self.folded.symmetric_difference_update({hunk})
        self._lay_out()
        self.go_to(self.rows.entry_of(self.file.hunks[hunk].start))

    def fold_all(self) -> None:
        """Fold all hunks; if all are folded, unfold them."""
        line, every = self.line, set(range(len(self.file.hunks)))
        self.folded = every if self.folded != every else set()
        self._lay_out()
        self.go_to(self.rows.entry_of(self.file.hunks[self.file.hunk_at(line)].start if self.folded else line))

    # The selection.

    def toggle_selection(self) -> None:
        """Select lines from here on, or end that."""
        self._anchor = self.cursor if self._anchor is None else None
        self.refresh()
        self.post_message(self.Moved())

    @property
    def selects(self) -> bool:
        return self._anchor is not None

    def drop_selection(self) -> bool:
        """End the selection; return whether there was one."""
        was, self._anchor = self._anchor is not None, None
        self.refresh()
        self.post_message(self.Moved())
        return was

    def selected_lines(self) -> list[int]:
        """Return the indexes of the selected lines of the file's content, without a selection that at the cursor."""
        low, high = sorted((self.cursor if self._anchor is None else self._anchor, self.cursor))
        entries = [entry for entry in self.rows.entries[low : high + 1] if entry.kind != "hunk"]
        lines = {line for entry in entries for line in (entry.old, entry.new) if line is not None}
        return sorted(line for line in lines if self.file.lines[line].token not in (Token.HUNK, Token.FAINT))

    # Layout and drawing.

    @property
    def _columns(self) -> int:
        return max(1, self.container_size.width - MARGIN)

    def _lay_out(self) -> None:
        self._is_stale = False
        self.rows = DiffRows(
            self.file,
            self._colours,
            self._pairs,
            self._columns,
            two_columns=self.is_two,
            folded=frozenset(self.folded),
            comments=self._comments,
            query=self.words,
            unfold_key=self._unfold_key,
        )
        self.cursor = min(self.cursor, max(0, len(self.rows.entries) - 1))
        if self._anchor is not None:
            self._anchor = min(self._anchor, self.cursor)
        self.virtual_size = Size(self._columns, self.rows.count)
        self.refresh()

    def _redraw(self) -> None:
        line = self.line if self._first_line is None else self._first_line
        self._first_line = None
        self._lay_out()
        self.go_to(self.rows.entry_of(line))

    def on_resize(self) -> None:
        if self._first_line is not None or self.rows.width != self._columns:
            self._redraw()
        else:
            self.go_to(self.cursor)

    async def _load_colours(self, colours: LineColours) -> None:
        """Add the colours once the lexer is loaded: the first frame does not wait for it."""
        await asyncio.to_thread(colours.load)
        if colours is self._colours:
            self._lay_out()

    def render_line(self, y: int) -> Strip:
        number, width = y + self.scroll_offset.y, self.size.width
        if self.rows.width != self._columns and not self._is_stale:  # no Resize came for the first layout
            self._is_stale = True
            self.call_later(self.on_resize)
        if number >= self.rows.count:
            return Strip.blank(width, self.look.style("text"))
        at = self.rows.entry_at(number)
        low, high = sorted((self.cursor if self._anchor is None else self._anchor, self.cursor))
        mark = self.look.mark("cursor") if at == self.cursor else " "
        return self._strip(self.rows.row(number), mark, "selected" if low <= at <= high else None, width)

    def _strip(self, row: Row, mark: str, over: Background | None, width: int) -> Strip:
        """Return *row* in exactly *width* cells; *over* replaces its backgrounds."""
        style = self.look.style
        background: Background = row[0].ground if row else "background"
        segments = [Segment(mark, style("accent", over or "background"))]
        left = width - 1
        for piece in row:
            text, size = piece.text, cell_len(piece.text)
            if size > left:
                text = self.look.cut(text, left)
                size = cell_len(text)
            if text:
                segments.append(Segment(text, style(piece.role, over or piece.ground)))
            left -= size
        if left > 0:
            segments.append(
                Segment(" " * left, style("text", over or (background if not self.is_two else "background")))
            )
        return Strip(segments, width)

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row < self.rows.count:
            event.stop()
            self.go_to(self.rows.entry_at(row))
