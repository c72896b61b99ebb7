"""The inbox's list: one line for each request, its cursor, its marks."""

from collections.abc import Collection, Sequence
from typing import Final

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kasmon.model.formatting import age
from kasmon.model.permission import RequestId, RequestKind
from kasmon.tui.clock import Clock
from kasmon.tui.permissions.inbox.state import InboxRow
from kasmon.tui.theme.look import KIND_WORDS, StyledSpan, ThemeStyles, width_of

KIND_GLYPHS: Final = {
    RequestKind.PERMISSION: ("◆", "!"),
    RequestKind.QUESTION: ("?", "?"),
    RequestKind.PLAN: ("≡", "="),
    RequestKind.AUTH: ("→", ">"),
}
"""Kind -> its symbol, and its symbol where the terminal is not UTF-8."""
MARK_CELLS: Final = 3
"""A click on this many cells at the left toggles the mark."""
WORDED: Final = 56
"""From this width on a kind is also named."""
NAMING_AGENTS: Final = 76
"""From this width on the agent is named."""
GAP: Final = "  "
"""Between two columns, as in the list of sessions."""
NAMES: Final = (8, 20)
"""The least and the most cells for a session's name."""


class InboxList(ScrollView, can_focus=False):
    """Gets its rows by `show`; posts `Picked` for a click."""

    DEFAULT_CSS = "InboxList { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }"
    ALLOW_SELECT = False

    class Picked(Message):
        """A click on a row; *marks* is whether it was on its mark."""

        def __init__(self, request: RequestId, marks: bool) -> None:
            super().__init__()
            self.request, self.marks = request, marks

    def __init__(self, look: ThemeStyles, clock: Clock) -> None:
        super().__init__(id="requests")
        self.look, self.clock = look, clock
        self.rows: Sequence[InboxRow] = ()
        self.cursor: RequestId | None = None
        self._marked: Collection[RequestId] = ()
        self._like: Collection[RequestId] = ()

    def show(
        self,
        rows: Sequence[InboxRow],
        cursor: RequestId | None,
        marked: Collection[RequestId],
        like: Collection[RequestId],
    ) -> None:
        """Show *rows*; *like* are those that may be marked along with the marked ones, or with the cursor's."""
        self.rows, self.cursor, self._marked, self._like = rows, cursor, marked, like
        self.virtual_size = Size(self.size.width, len(rows))
        self.scroll_to_cursor()
        self.refresh()

    def scroll_to_cursor(self) -> None:
        at = next((y for y, row in enumerate(self.rows) if row.request.id == self.cursor), None)
        if at is not None and self.size.height:
            self.scroll_to_region(Region(0, at, 1, 1), animate=False, immediate=True, force=True)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self.rows))
        self.scroll_to_cursor()

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.size.width
        if at >= len(self.rows):
            return Strip.blank(width, self.look.style("text"))
        row = self.rows[at]
        is_selected = row.request.id == self.cursor
        left, right = self._spans(row, is_selected, width)
        return self.look.between(left, right, width, "selected" if is_selected else "background")

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if at < len(self.rows):
            event.stop()
            self.post_message(self.Picked(self.rows[at].request.id, event.x < MARK_CELLS))

    def _spans(self, row: InboxRow, is_selected: bool, width: int) -> tuple[list[StyledSpan], list[StyledSpan]]:
        look, ask = self.look, row.request
        kind_text = KIND_WORDS[ask.kind] if width >= WORDED and row.waits else ""
        kind = f"{KIND_GLYPHS[ask.kind][0 if look.utf8 else 1]} {look.fit(kind_text, 10) if kind_text else ''}"
        loud = row.waits and not ask.later
        left: list[StyledSpan] = [
            (look.mark("cursor") if is_selected else " ", "accent"),
            (f"{self._box(row)} ", "accent.bold" if ask.id in self._marked else "soft"),
            (kind, "state-asking.bold" if loud else "faint"),
            (GAP, "text"),
            (look.fit(row.name, self._name_cells(width)), "text.bold" if loud else "soft"),
            (GAP, "text"),
        ]
        if not row.waits:  # the outcome, in full
            return [*left, (row.outcome, "info")], []
        if width >= NAMING_AGENTS:
            left += [(look.fit(row.agent, 9), "soft"), (GAP, "text")]
        right: list[StyledSpan] = [(f"{age(self.clock.now() - ask.asked_at):>4} ", "faint")]
        if row.crowd:
            is_like = ask.id in self._like
            right.insert(0, (f" {row.crowd} similar", "accent.bold" if is_like else "faint"))
        if row.changed:
            left.append(("changed  ", "warn.bold"))
        if ask.later:
            left.append(("snoozed  ", "soft"))
        left.append((row.says or look.mark("more"), "text" if loud else "soft"))
        return left, right

    def _box(self, row: InboxRow) -> str:
        if row.request.id in self._marked:
            return "■" if self.look.utf8 else "x"
        may = row.waits and row.request.id in self._like if self._marked else row.waits and bool(row.crowd)
        return ("□" if self.look.utf8 else "-") if may else " "

    def _name_cells(self, width: int) -> int:
        least, most = NAMES
        longest = max((width_of([(row.name, "")]) for row in self.rows), default=least)
        return max(least, min(longest, most, width // 4))
