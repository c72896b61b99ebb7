"""The list of sessions: one Line-API widget, as fast for five thousand rows as for five.

Only changed rows are drawn again. The selected session stays selected when the order changes. The order is fixed for a
second after each key, so that no row moves while the user is typing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from rich.cells import cell_len
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from kasmon.config.profile import ProfileOffer
from kasmon.model.attention import next_pressing, pressing, waiting_peers
from kasmon.model.collisions import CollisionSummary
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet, FleetDifference, difference
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.repository.branch import BranchSummary
from kasmon.tui.clock import Clock
from kasmon.tui.empty_state import fit_lines, nothing_lines
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import LayoutChanged, SessionOpened, SessionSelected, SortRequested
from kasmon.tui.sandbox.status import is_broken, mode_cells
from kasmon.tui.session_list.branch_marks import branch_cells
from kasmon.tui.session_list.layout import GroupKey, ListLayout
from kasmon.tui.session_list.order import ListEntry, ListHeading, ListOrder, ListSettings, SessionRow
from kasmon.tui.session_list.row import (
    MACHINE,
    ListColumn,
    RowContent,
    column_at,
    columns,
    empty_columns,
    header,
    heading,
    moments,
    row,
)
from kasmon.tui.textual_ext.repaint import ImmediatePainter, runs
from kasmon.tui.textual_ext.strips import LinesOnlyMixin
from kasmon.tui.theme.look import StyledSpan, ThemeStyles

QUIET_S: Final = 1.0
"""How long the order is fixed after a key, in seconds."""
RESORT_S: Final = 0.5
"""The minimum interval between changes of the order, in seconds."""


class ListHeader(Widget):
    """The titles above the list."""

    DEFAULT_CSS = "ListHeader { height: 1; }"

    def __init__(self, table: "SessionTable") -> None:
        super().__init__()
        self.table = table
        table.header = self

    def render_line(self, y: int) -> Strip:
        table = self.table
        table.measure_first()
        return header(table.columns, self.size.width, table.view.sort, table.look)

    def on_click(self, event: events.Click) -> None:
        column = column_at(self.table.columns, event.x)
        if column is not None and column.sort is not None:
            self.post_message(SortRequested(column.sort))


class SessionTable(LinesOnlyMixin, ScrollView, can_focus=True):
    """The sessions, those that need the user first. Posts `SessionSelected` and `SessionOpened`."""

    DEFAULT_CSS = """
    SessionTable { height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    ALLOW_SELECT = False

    def __init__(self, look: ThemeStyles, clock: Clock) -> None:
        super().__init__()
        self.look, self.clock = look, clock
        self.fleet = Fleet()
        self.view = ListSettings()
        self.header: ListHeader | None = None
        self.pinned: SessionId | None = None
        self.items: list[ListEntry] = []
        self.collisions: Mapping[SessionId, CollisionSummary] = {}
        self.columns: tuple[ListColumn, ...] = ()
        self.keys = KeyMap()
        self.offers: Sequence[ProfileOffer] | None = None
        """The agents that can be started here; None until it is known."""
        self.branches: Mapping[SessionId, BranchSummary] = {}
        self.last_key_at = float("-inf")
        self._is_chosen = False
        """The user has moved the cursor; before that it stays on the first line when rows move."""
        self._list_order = ListOrder()
        self._selected: SessionId | str | None = None
        self._tag = ""
        """The tag of the selected line, of several lines of one session."""
        self._index = 0
        self._awaited = ""
        """The name of a requested session that does not exist yet."""
        self._stale = False
        """The order may differ from the one shown."""
        self._arranged_at = float("-inf")
        self._strips: dict[SessionId, tuple[tuple[RowContent, str], Strip]] = {}
        self._names_width = 8
        self._painter = ImmediatePainter()

    # Content.

    @property
    def _item(self) -> ListEntry | None:
        """The line under the cursor; None in an empty list."""
        return self.items[self._index] if self._index < len(self.items) else None

    @property
    def selected(self) -> SessionId | None:
        """The session under the cursor; None on a heading or in an empty list."""
        item = self._item
        return item.session if isinstance(item, SessionRow) else None

    @property
    def selected_session(self) -> Session | None:
        """That session, as of the last fleet."""
        return None if (selected := self.selected) is None else self.session(selected)

    def sessions(self) -> dict[SessionId, Session]:
        """Return every session by its id, as of the last fleet."""
        return dict(self._list_order.sessions)

    def session(self, wanted: SessionId) -> Session | None:
        return self._list_order.sessions.get(wanted)

    def offer(self, offers: Sequence[ProfileOffer]) -> None:
        """Set the agents that can be started, which an empty list shows."""
        self.offers = offers
        self.refresh()

    def shown(self) -> list[Session]:
        """Return the sessions in the list, filtered and in order."""
        ids = dict.fromkeys(item.session for item in self.items if isinstance(item, SessionRow))
        return [session for id_ in ids if (session := self.session(id_)) is not None]

    def show_change(self, fleet: Fleet, change: FleetDifference | None = None) -> None:
        """Show *fleet*: changed rows now, a changed order as soon as the keyboard is quiet."""
        change = change or difference(self.fleet, fleet)
        self.fleet = fleet
        self._stale = self._list_order.update(fleet, change) or self._stale
        for gone in change.gone:
            self._strips.pop(gone, None)
        self._stale = self._stale or (self.view.group is GroupKey.WAVE and bool(change.changed))
        if self._awaited:
            self._select_awaited()
        if self._stale:
            self.settle()
        self._refresh_rows({session.id for session in change.changed} | set(change.gone))

    def settle(self) -> None:
        """Sort the rows, unless a key came or the order changed only just now."""
        now = self.clock.ticking()
        if self._stale and now - self.last_key_at >= QUIET_S and now - self._arranged_at >= RESORT_S:
            self.reorder()

    def apply_settings(self, view: ListSettings) -> None:
        if view.layout != self.view.layout:
            self.post_message(LayoutChanged(view.layout))
        self.view = view
        self.reorder()

    def restore_layout(self, layout: ListLayout) -> None:
        self.view = msgspec.structs.replace(
            self.view,
            group=layout.group,
            folded=frozenset(layout.folded),
            filters=layout.filters,
            columns=layout.columns,
        )
        if self.items:  # else the first fleet is sorted at once
            self.reorder()

    def reorder(self) -> None:
        before, top = self.items, self.scroll_offset.y
        self.items = self._list_order.items(self.fleet, self.view)
        self._stale = False
        self._arranged_at = self.clock.ticking()
        self._measure()
        if self.virtual_size.height != len(self.items):
            self.virtual_size = Size(self.size.width, len(self.items))
        self._restore_cursor(top)
        if before != self.items:
            self.refresh()

    def move_page(self, pages: int) -> None:
        """Move the cursor down by *pages*; up if negative."""
        self.move(pages * max(1, self.size.height - 1))

    def redraw(self) -> None:
        self._strips.clear()
        self.refresh()

    def tick(self) -> None:
        """Redraw the rows whose ages changed, and sort if that was delayed; called every second."""
        self.settle()
        now = self.clock.now()
        self._paint([y for y, item in self._in_sight() if self._is_outdated(item, now)])

    def _is_outdated(self, item: ListEntry, now: float) -> bool:
        session = self.session(item.session) if isinstance(item, SessionRow) else None
        drawn = None if session is None else self._strips.get(session.id)
        return session is not None and drawn is not None and drawn[0][1] != moments(session, now)

    # The cursor.

    def move(self, by: int) -> None:
        self.select_index(self._index + by)

    def select_index(self, index: int) -> None:
        """Move the cursor to this line, or the nearest one, and show it."""
        if not self.items:
            return
        self._is_chosen = True
        before, self._index = self._index, max(0, min(index, len(self.items) - 1))
        self.refresh_line(before)
        self.refresh_line(self._index)
        self._show_cursor()
        self._post_selection()

    def select(self, wanted: SessionId) -> bool:
        """Move the cursor to this session, unless it is there; False if the list does not show it."""
        if self.selected == wanted:
            self.select_index(self._index)
            return True
        for index, item in enumerate(self.items):
            if isinstance(item, SessionRow) and item.session == wanted:
                self.select_index(index)
                return True
        return False

    def await_name(self, name: str) -> None:
        """Move the cursor to the session of this name as soon as it exists."""
        self._awaited = name
        self._select_awaited()

    def _select_awaited(self) -> None:
        for session in self._list_order.sessions.values():
            if session.name == self._awaited:
                self._awaited = ""
                self.reorder()
                self.select(session.id)
                return

    def next_that_needs(self) -> SessionId | None:
        """Return the session that needs the user most, or the next one after the selected; None without another."""
        now = self.clock.now()
        order = pressing(self.shown(), now, waiting_peers(self._list_order.sessions.values()))
        found = next_pressing(order, self.selected)
        return None if found is None else found.id

    def fold(self, shut: bool) -> None:
        """Fold or unfold the group under the cursor: a wave, or a session with child rows."""
        if (item := self._item) is None:
            return
        key = item.key if isinstance(item, ListHeading) else self._group_of(self._index) if shut else str(item.session)
        if key is None or (key in self.view.folded) == shut:
            return
        folded = self.view.folded | {key} if shut else self.view.folded - {key}
        self._is_chosen = True
        self._selected = key
        self.apply_settings(msgspec.structs.replace(self.view, folded=folded))

    def toggle_fold(self) -> None:
        """Fold the heading under the cursor, or unfold it."""
        if isinstance(item := self._item, ListHeading):
            self.fold(not item.folded)

    def mark(self, collisions: Mapping[SessionId, CollisionSummary]) -> None:
        """Mark these sessions as colliding with others, and no others."""
        before, self.collisions = self.collisions, collisions
        changed = {s for s in before.keys() | collisions.keys() if before.get(s) != collisions.get(s)}
        if changed:
            self._measure()
        self._refresh_rows(changed)

    def show_branches(self, branches: Mapping[SessionId, BranchSummary]) -> None:
        """Mark these sessions with the states of their branches, and no others."""
        before, self.branches = self.branches, branches
        self._measure()
        self._refresh_rows({s for s in before.keys() | branches.keys() if before.get(s) != branches.get(s)})

    def pin(self, wanted: SessionId | None) -> None:
        """Mark this session as the one that the preview is pinned to."""
        self.pinned = wanted
        self._measure()
        self.refresh()

    # Drawing.

    def render_line(self, y: int) -> Strip:
        self.measure_first()
        index = y + self.scroll_offset.y
        width = self.size.width
        if index >= len(self.items):
            return self._empty_line(y, width)
        item = self.items[index]
        selected = index == self._index
        if isinstance(item, ListHeading):
            return heading(item, width, selected, self.look)
        session = self.session(item.session)
        if session is None:
            return Strip.blank(width, self.look.style("text"))
        now = self.clock.now()
        line = RowContent(
            session,
            item,
            self.columns,
            width,
            selected,
            item.session == self.pinned,
            str(item.session) in self.view.folded,
            self.collisions.get(item.session),
            self.branches.get(item.session),
        )
        known, moment = self._strips.get(item.session), moments(session, now)
        if known is not None and known[0] == (line, moment):
            return known[1]
        strip = row(line, now, self.look)
        self._strips[item.session] = ((line, moment), strip)
        return strip

    def nothing(self) -> Sequence[Sequence[StyledSpan]]:
        """Return the content of an empty list."""
        lines = nothing_lines(self.view.filter, self.keys, self.look.utf8, self.offers)
        return fit_lines(lines, self.size.height - 1, self.size.width - 3)

    def _empty_line(self, y: int, width: int) -> Strip:
        if self.items:  # without `strip`: each picture of the whole screen draws dozens of these
            return Strip.blank(width, self.look.style("text"))
        lines = self.nothing()
        spans = lines[y - 1] if 0 < y <= len(lines) else ()
        return self.look.strip([("  ", "text"), *spans], width)

    # Events.

    def on_resize(self, event: events.Resize) -> None:
        self._measure()
        self.virtual_size = Size(self.size.width, len(self.items))
        self._show_cursor()

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if index >= len(self.items):
            return
        self.select_index(index)
        item = self.items[index]
        if isinstance(item, ListHeading):
            self.toggle_fold()
        elif event.chain == 2:
            self.post_message(SessionOpened(item.session))

    def on_focus(self) -> None:
        self._refresh_rows({self._selected} if isinstance(self._selected, str) else ())

    # Internals.

    def measure_first(self) -> None:
        """Fit the columns of the first frame, which is drawn before `on_resize`, so that it has the sessions."""
        if not self.columns and self.size.width:
            self.columns = self._fit_columns()

    def _measure(self) -> None:
        """Fit the columns. A hidden list has no width and keeps its columns; `on_resize` follows when it is shown."""
        if not self.size.width:
            return
        before = self.columns
        self.columns = self._fit_columns()
        if self.columns != before:
            self.refresh()  # every row: unchanged ones have other columns too
            if self.header is not None:
                self.header.refresh()

    def _fit_columns(self) -> tuple[ListColumn, ...]:
        sessions = self._list_order.sessions.values()
        self._names_width = max(map(self._name_cells, sessions), default=8)
        for item in self.items:
            if isinstance(item, SessionRow) and item.depth and (child := self.session(item.session)) is not None:
                self._names_width = max(self._names_width, self._name_cells(child) + 2 * item.depth)
        interpreters = (len(session.agent) for session in sessions if session.mode is Mode.INTERPRETER)
        branches = (each for id_, each in self.branches.items() if id_ in self._list_order.sessions)
        return columns(
            self.size.width,
            self._names_width,
            chosen=self.view.columns,
            without=empty_columns(sessions),
            agent=max(interpreters, default=0),
            mode=max(map(mode_cells, sessions), default=0),
            branch=max((branch_cells(each, self.look) for each in branches), default=0),
            machine=max((len(session.via) for session in sessions), default=0),
            tags=max((cell_len(" ".join(session.tags)) for session in sessions if session.tags), default=0),
        )

    def _name_cells(self, session: Session) -> int:
        """Return the width of its name and marks; ASCII names are fast, as there may be thousands."""
        name, marks = session.name, is_broken(session) + (session.id in self.collisions) + (session.id == self.pinned)
        marks += bool(session.finish_proposed)
        marks += bool(session.via) and self.size.width < MACHINE.least
        return (len(name) if name.isascii() else cell_len(name)) + 2 * marks

    def _restore_cursor(self, top: int) -> None:
        """Find the selected line again in changed rows; the view moves with it unless it shows the top."""
        before = self._index
        positions = [
            index
            for index, item in enumerate(self.items if self._is_chosen else ())
            if self._selected == (item.session if isinstance(item, SessionRow) else item.key)
        ]
        if positions:
            self._index = next((index for index in positions if _tag_of(self.items[index]) == self._tag), positions[0])
        else:
            self._index = max(0, min(before, len(self.items) - 1)) if self._is_chosen else self._first_row()
        if top and self._index != before:
            self.scroll_to(y=max(0, top + self._index - before), animate=False, immediate=True)
        self._show_cursor()
        self._post_selection()

    def _first_row(self) -> int:
        return next((index for index, item in enumerate(self.items) if isinstance(item, SessionRow)), 0)

    def _show_cursor(self) -> None:
        height, top = self.size.height, self.scroll_offset.y
        if height <= 0:
            return
        if top > (last := max(0, len(self.items) - height)):
            self.scroll_to(y=last, animate=False, immediate=True)
            top = last
        if self._index < top:
            self.scroll_to(y=self._index, animate=False, immediate=True)
        elif self._index >= top + height:
            self.scroll_to(y=self._index - height + 1, animate=False, immediate=True)

    def _post_selection(self) -> None:
        item = self._item
        key: SessionId | str | None = (
            None if item is None else item.session if isinstance(item, SessionRow) else item.key
        )
        self._tag = _tag_of(item)
        if key != self._selected:
            self._selected = key
            self.post_message(SessionSelected(self.selected))

    def _group_of(self, index: int) -> str | None:
        """Return the key of the group that the line at *index* can be folded into."""
        item = self.items[index]
        if not isinstance(item, SessionRow):
            return item.key
        if item.children and str(item.session) not in self.view.folded:
            return str(item.session)
        for above in reversed(self.items[:index]):
            if isinstance(above, ListHeading):
                return above.key
            if above.depth < item.depth and above.children:
                return str(above.session)
        return None

    def _refresh_rows(self, wanted: Iterable[SessionId | str]) -> None:
        ids = set(wanted)
        if not ids:
            return
        self._paint(y for y, item in self._in_sight() if isinstance(item, SessionRow) and item.session in ids)

    def _in_sight(self) -> Iterator[tuple[int, ListEntry]]:
        """Yield the visible lines, each with its offset from the top."""
        first = self.scroll_offset.y
        return enumerate(self.items[first : first + self.size.height])

    def _paint(self, lines: Iterable[int]) -> None:
        """Redraw these visible *lines*. Textual's own way renders every widget that they cross."""
        width = self.scrollable_content_region.width  # without the scrollbar, which covers the lines
        if regions := [Region(0, y, width, rows) for y, rows in runs(lines)]:
            self._painter.paint(self, regions)


def _tag_of(item: ListEntry | None) -> str:
    return item.tag if isinstance(item, SessionRow) else ""
