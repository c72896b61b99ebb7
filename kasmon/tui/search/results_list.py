"""The list of search results: one line for each session, below it one for each match, and a cursor."""

from collections.abc import Sequence
from typing import Final

import msgspec
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.formatting import age
from kasmon.model.transcript.search.text import SearchHit
from kasmon.sanitize import clean_line
from kasmon.supervisor.search.search import SessionHits
from kasmon.tui.clock import Clock
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of

KINDS: Final = {"said": "agent", "asked": "request", "printed": "terminal"}
"""Kinds of text that are displayed by another word than in `kasmon grep --json`."""
KIND_CELLS: Final = 8
LEAD = 3
"""A match that begins further right than a third of the width is moved left."""


class ResultRow(msgspec.Struct, frozen=True):
    hits: SessionHits
    hit: SearchHit | None = None
    """None on the line of the session."""


class SearchResultsList(ScrollView, can_focus=False):
    """Gets results by `show` and `add`; posts `Picked` for a click on a match, or for a second one on it."""

    DEFAULT_CSS = "SearchResultsList { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }"
    ALLOW_SELECT = False

    class Picked(Message):
        """A click on a match; *opens* if the cursor was there already."""

        def __init__(self, *, opens: bool) -> None:
            super().__init__()
            self.opens = opens

    class Moved(Message):
        """The cursor moved to another match."""

    def __init__(self, look: ThemeStyles, clock: Clock) -> None:
        super().__init__(id="search-list")
        self.look, self.clock = look, clock
        self.rows: list[ResultRow] = []
        self.at = 0
        """The cursor's row; that of a match, if there is any."""

    def show(self, hits: Sequence[SessionHits]) -> None:
        self.rows, self.at = [], 0
        self.scroll_to(y=0, animate=False, immediate=True)
        for each in hits:
            self.add(each)
        self._lay_out()

    def add(self, hits: SessionHits) -> None:
        self.rows += [ResultRow(hits), *(ResultRow(hits, hit) for hit in reversed(hits.hits))]
        if self.at == 0 and len(self.rows) > 1:
            self.at = 1
            self.post_message(self.Moved())
        self._lay_out()

    @property
    def chosen(self) -> ResultRow | None:
        """The match at the cursor; None if there is none."""
        return self.rows[self.at] if 0 < self.at < len(self.rows) else None

    def move(self, by: int) -> None:
        """Move the cursor by so many matches, up if negative."""
        positions = [at for at, row in enumerate(self.rows) if row.hit is not None]
        if positions:
            index = positions.index(self.at) if self.at in positions else 0
            self._go(positions[min(max(index + by, 0), len(positions) - 1)])

    def turn_page(self, pages: int) -> None:
        self.move(pages * max(1, self.size.height - 1))

    def _go(self, at: int) -> None:
        self.at = at
        self.post_message(self.Moved())
        self._scroll_to_cursor()
        self.refresh()

    def _scroll_to_cursor(self) -> None:
        """Scroll to the cursor, and to the line of its session if that is directly above."""
        if self.size.height and self.rows:
            above = 1 if self.at > 0 and self.rows[self.at - 1].hit is None else 0
            region = Region(0, self.at - above, 1, 1 + above)
            self.scroll_to_region(region, animate=False, immediate=True, force=True)

    def _lay_out(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows))
        self.refresh()

    def on_resize(self) -> None:
        self._lay_out()
        self._scroll_to_cursor()

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if at < len(self.rows) and self.rows[at].hit is not None:
            event.stop()
            opens = at == self.at
            self._go(at)
            self.post_message(self.Picked(opens=opens))

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.size.width
        if at >= len(self.rows):
            return Strip.blank(width, self.look.style("text"))
        row = self.rows[at]
        if row.hit is None:
            return self._of_session(row.hits, width)
        return self._of_hit(row.hit, at == self.at, width)

    def _of_session(self, hits: SessionHits, width: int) -> Strip:
        session, count = hits.session, len(hits.hits)
        left: list[StyledSpan] = [(" ", "text"), (clean_line(session.label), "text.bold")]
        left.append((f"  {clean_line(session.agent)}", "faint"))
        return self.look.between(left, [(f"{count_hits(count, hits.more)} ", "soft")], width)

    def _of_hit(self, hit: SearchHit, is_selected: bool, width: int) -> Strip:
        look = self.look
        left: list[StyledSpan] = [
            (look.mark("cursor") if is_selected else " ", "accent"),
            (f"  {look.fit(KINDS.get(hit.what, hit.what), KIND_CELLS)}  ", "soft"),
        ]
        right: list[StyledSpan] = [(f"{age(self.clock.now() - hit.at):>4} ", "faint")]
        left += highlight_match(hit, width - width_of(left) - width_of(right) - 1, look)
        return look.between(left, right, width, "selected" if is_selected else "background")


def count_hits(count: int, more: bool) -> str:
    """Return the number of matches in words; *more*: there are further ones."""
    return f"{count}{'+' if more else ''} {'match' if count == 1 and not more else 'matches'}"


def highlight_match(hit: SearchHit, space: int, look: ThemeStyles) -> list[StyledSpan]:
    """Return the line of *hit* in about *space* cells, with the match highlighted and visible."""
    line = hit.line
    first = len(line) - len(line.lstrip())
    if hit.start - first > 2 * space // LEAD or (hit.end - first > space and hit.start - first > space // LEAD):
        first = max(first, hit.start - space // LEAD)
        cut = look.mark("more")
    else:
        cut, first = "", min(first, hit.start)
    shown = clean_line(line[first : hit.start]), clean_line(line[hit.start : hit.end]), clean_line(line[hit.end :])
    return [(f"{cut}{shown[0]}", "text"), (shown[1], "accent.solid.bold"), (shown[2], "text")]
