"""The main screen: totals, list, preview, notices, keys. Its layout depends on the window's size."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.fleet import Fleet, FleetDifference, FleetTotals, difference
from kasmon.model.limits.account import account_limits
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.repository.branch import BranchSummary
from kasmon.sanitize import clean_line
from kasmon.tui.clock import Clock
from kasmon.tui.gateway.protocol import DashboardSettings, Split
from kasmon.tui.keymap import KeyMap
from kasmon.tui.messages import (
    FilterChanged,
    FilterClosed,
    KeyContextChanged,
    SessionSelected,
    SortRequested,
    SplitChanged,
    StateClicked,
)
from kasmon.tui.preview import Preview, PreviewContent, Reuse, TerminalPane
from kasmon.tui.session_list.filter_bar import FilterBar, TabBar
from kasmon.tui.session_list.order import FilterCounts, ListSettings
from kasmon.tui.session_list.table import ListHeader, SessionTable
from kasmon.tui.status_bars import Banner, KeyBar, TopBar, TopBarContent
from kasmon.tui.textual_ext.strips import UniformContainer, UniformLinesMixin, UniformVertical
from kasmon.tui.theme.look import ThemeStyles

SHORT: Final = {"five_hour": "5h", "weekly": "week"}
"""Short names of usage limits for the line above the list."""


class ListTotals:
    """Counts the same totals as `kasmon.model.fleet.totals`, incrementally from the changed sessions."""

    def __init__(self) -> None:
        self._counted: dict[SessionId, Session] = {}
        self._reporting: dict[SessionId, Session] = {}
        """Those that reported a usage limit."""
        self._states: Counter[SessionState] = Counter()
        self._crashed = self._finished = self._requests = self._tokens = 0
        self._cost_usd = 0.0

    def __len__(self) -> int:
        return len(self._counted)

    def update(self, changed: Iterable[Session], gone: Iterable[SessionId]) -> None:
        """Count *changed* by their new values, and drop *gone*."""
        for session in changed:
            self._add(self._counted.pop(session.id, None), -1)
            self._add(session, 1)
            self._counted[session.id] = session
            self._reporting.pop(session.id, None)
            if session.limit_windows:
                self._reporting[session.id] = session
        for session_id in gone:
            self._reporting.pop(session_id, None)
            self._add(self._counted.pop(session_id, None), -1)

    def limits(self, now: float) -> tuple[tuple[str, float], ...]:
        """Return the fullest limit of each account and its used share, as `TopBarContent.limits`."""
        accounts = account_limits(self._reporting.values(), now)
        fullest = [max((w.used or 0.0, w.name) for w in each.windows) for each in accounts if each.windows]
        labels = [clean_line(each.key.label) for each in accounts if each.windows]
        shown = [
            (f"{label} {SHORT.get(name, name)}", used) for label, (used, name) in zip(labels, fullest, strict=True)
        ]
        return tuple(sorted((each for each in shown if each[1]), key=lambda each: -each[1]))

    def totals(self) -> FleetTotals:
        return FleetTotals(
            states=dict(self._states),
            crashed=self._crashed,
            finished=self._finished,
            requests=self._requests,
            tokens=self._tokens,
            cost_usd=max(0.0, self._cost_usd),
        )

    def _add(self, session: Session | None, sign: int) -> None:
        if session is None:
            return
        self._states[session.state] += sign * (not session.is_unviewed)
        self._crashed += sign * session.crashed
        self._finished += sign * session.is_unviewed
        self._requests += sign * len(session.requests)
        self._tokens += sign * (session.tokens.input + session.tokens.output if session.tokens else 0)
        self._cost_usd += sign * (session.cost_usd or 0.0)


LEAST_WIDTH: Final = 40
LEAST_HEIGHT: Final = 10
BESIDE_WIDTH: Final = 140
"""From this width on the preview is beside the list, else below it."""
LEAST_PREVIEW_WIDTH: Final = 30
LEAST_ROWS: Final = 4
"""Dragging the divider leaves the list and the preview below it at least this many rows."""
TOTALS_S: Final = 0.5


class TooSmall(Widget):
    """The notice in a window that is too small for anything else."""

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(id="too-small")
        self.look = look

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = (f"Terminal too small: {width}x{self.size.height}", f"(minimum {LEAST_WIDTH}x{LEAST_HEIGHT}).")
        return self.look.strip([(lines[y] if y < len(lines) else "", "text")], width)


class MainView(UniformLinesMixin, Container):
    """All widgets of the main screen: gets the fleet and the list settings, and posts its widgets' messages only."""

    def __init__(self, look: ThemeStyles, clock: Clock, make_inside: PreviewContent, reuse_inside: Reuse) -> None:
        super().__init__(id="desk")
        self.look, self.clock = look, clock
        self.top_bar = TopBar(look, id="totals")
        self.table = SessionTable(look, clock)
        self.table_header = ListHeader(self.table)
        self.tab_bar = TabBar(look, id="tabs")
        self.filter_counts = FilterCounts()
        self.filter_bar = FilterBar(look)
        self.tally = ListTotals()
        self.preview = Preview(look, clock, make_inside, reuse_inside)
        self.banner = Banner(look, id="banner")
        self.key_bar = KeyBar(look, id="keys")
        self.small = TooSmall(look)
        self.side = UniformVertical(id="side")
        self.preview_wanted = True
        self.has_nobody = False
        """There is no session: no preview is shown, and the list shows how to begin."""
        self.split = Split()
        self._is_dragging = False
        self.pinned: SessionId | None = None
        self.focused_inside = False
        self._previous_focus: Widget | None = None
        """The widget that had the focus when the window became too small."""
        self._counted_at = float("-inf")
        self._rows_given = -1
        self._machines = 0, 0
        self._memory = 0, 0
        """How many machines are registered, and how many of them are unreachable."""

    def compose(self) -> ComposeResult:
        self.set_class(self._room.width >= BESIDE_WIDTH, "-beside")  # later, all widgets in it would be styled again
        yield self.top_bar
        with UniformContainer(id="middle"):
            with self.side:
                yield self.tab_bar
                yield self.filter_bar
                yield self.table_header
                yield self.table
            yield self.preview
        yield self.banner
        yield self.key_bar
        yield self.small

    def on_mount(self) -> None:
        self.app.screen_change_signal.subscribe(self, lambda _screen: self._post_key_context())

    def on_descendant_focus(self) -> None:
        self._post_key_context()

    def _post_key_context(self) -> None:
        self.post_message(KeyContextChanged())

    def show_change(self, fleet: Fleet, change: FleetDifference | None = None) -> None:
        change = change or difference(self.table.fleet, fleet)
        self.table.show_change(fleet, change)
        self.tally.update(change.changed, change.gone)
        self._count()
        self.filter_counts.update(change.changed, change.gone)
        self._update_filter_bar()
        self._preview_selected()
        if self.has_nobody is bool(fleet.sessions):
            self.has_nobody = not fleet.sessions
            self._lay_out()
        self._share_room()

    def tick(self) -> None:
        """Refresh ages and totals; called every second."""
        self.table.tick()
        self._count()
        self.preview.head.tick()
        self._share_room()

    def show_branches(self, branches: Mapping[SessionId, BranchSummary]) -> None:
        self.table.show_branches(branches)
        self._preview_selected()

    def show_memory(self, memory_bytes: int, budget_bytes: int) -> None:
        self._memory = memory_bytes, budget_bytes
        self._count(at_once=True)

    def show_machines(self, machines: int, unreachable: int) -> None:
        self._machines = machines, unreachable
        self._count(at_once=True)

    def apply_settings(self, view: ListSettings) -> None:
        self.table.apply_settings(view)
        self._update_filter_bar()
        self.table_header.refresh()
        self._count(at_once=True)
        self._share_room()

    def begin(self, settings: DashboardSettings) -> None:
        """Lay the screen out, and arrange the list, by these settings."""
        self.preview_wanted, self.split = settings.preview, settings.split
        self.table.restore_layout(settings.layout)
        self._update_filter_bar()
        self._lay_out()

    def toggle_preview(self) -> None:
        self.preview_wanted = not self.preview_wanted
        self._lay_out()

    def pin(self) -> None:
        """Pin the selected session to the preview, or unpin."""
        self.pinned = None if self.pinned is not None else self.table.selected
        self.table.pin(self.pinned)
        self.preview.head.pinned = self.pinned is not None
        self._preview_selected()

    def enter(self, session: SessionId) -> None:
        """Open this session in the whole middle of the screen."""
        self.focused_inside = True
        self.table.select(session)
        self.preview.session = self.table.session(session)
        self.preview.build()
        self._lay_out()

    def leave(self) -> None:
        self.focused_inside = False
        self._lay_out()
        self._preview_selected()
        self.screen.set_focus(self.table)

    def begin_filter(self, keys: KeyMap) -> None:
        self.filter_bar.begin(keys)
        self._share_room()

    def change_settings(self, **changes: object) -> None:
        self.apply_settings(msgspec.structs.replace(self.table.view, **changes))

    def show_all(self) -> None:
        self.change_settings(filter="")

    def on_filter_changed(self, message: FilterChanged) -> None:
        message.stop()
        self.change_settings(filter=message.text)

    def on_state_clicked(self, message: StateClicked) -> None:
        """Filter by this state, or clear that filter. Ignored while the filter is edited or a session is open."""
        message.stop()
        if self.filter_bar.box is None and not self.focused_inside:
            text = f"state:{message.state}"
            self.change_settings(filter="" if self.table.view.filter == text else text)

    def on_sort_requested(self, message: SortRequested) -> None:
        message.stop()
        self.change_settings(sort=message.sort)

    def on_filter_closed(self, message: FilterClosed) -> None:
        message.stop()
        self.end_filter(kept=message.kept)

    def end_filter(self, *, kept: bool) -> None:
        """Close the filter's input box; *kept* is whether its text stays in force."""
        if not kept:
            self.show_all()
        self.filter_bar.end()
        self._share_room()
        self.screen.set_focus(self.table)

    def on_session_selected(self, message: SessionSelected) -> None:
        """Handled here and not in the app: messages that the main view causes itself stop at it."""
        message.stop()
        self._preview_selected()
        self._post_key_context()

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    # The divider: the preview's left border where it is beside the list, else its first row.

    def _is_divider(self, event: events.MouseEvent) -> bool:
        if self.focused_inside or self.has_class("-no-preview") or self.has_class("-too-small"):
            return False
        preview = self.preview.region
        if self.has_class("-beside"):
            return event.screen_x == preview.x and preview.y <= event.screen_y < preview.bottom
        return event.screen_y == preview.y

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1 and self._is_divider(event):
            event.stop()
            self._is_dragging = True
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if not self._is_dragging:
            return
        event.stop()
        if not event.button:  # the button was released outside the window
            self._drop()
            return
        width, height = self._room
        if self.has_class("-beside"):
            cells = max(LEAST_WIDTH, min(round(event.screen_x), width - LEAST_PREVIEW_WIDTH))
            split = msgspec.structs.replace(self.split, width=_percent(cells, width))
        else:
            rows = max(LEAST_ROWS, min(round(event.screen_y) - 1, height - 2 - LEAST_ROWS))
            split = msgspec.structs.replace(self.split, height=_percent(rows, height - 2))
        if split != self.split:
            self.split = split
            self._lay_out()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._is_dragging:
            event.stop()
            self._drop()

    def _drop(self) -> None:
        self._is_dragging = False
        self.release_mouse()
        self.post_message(SplitChanged(self.split))

    @property
    def _room(self) -> Size:
        """The size of this widget. During a resize the app has a newer size, which may never be applied."""
        return self.size or self.app.size

    def _lay_out(self) -> None:
        width, height = self._room
        self._set_too_small(width < LEAST_WIDTH or height < LEAST_HEIGHT)
        self.set_class(width >= BESIDE_WIDTH, "-beside")
        has_room = height >= 16 or width >= BESIDE_WIDTH
        self.set_class(self.has_nobody or not (self.preview_wanted and has_room), "-no-preview")
        self.set_class(self.focused_inside, "-inside")
        self.set_class(self.focused_inside and isinstance(self.preview.inside, TerminalPane), "-terminal")
        self._rows_given = -1
        self._share_width()
        self._share_room()

    def _share_width(self) -> None:
        """Side by side, give the list the width that the user chose, within limits."""
        width = self._room.width
        is_split = bool(self.split.width) and self.has_class("-beside") and not self.has_class("-no-preview")
        cells = max(LEAST_WIDTH, min(width * self.split.width // 100, width - LEAST_PREVIEW_WIDTH))
        self.side.styles.width = cells if is_split and not self.focused_inside else None
        self.preview.styles.width = "1fr" if is_split else None

    def _set_too_small(self, too_small: bool) -> None:
        """Textual blurs what it hides: afterwards, restore the focus, or else focus the list."""
        was = self.has_class("-too-small")
        self.set_class(too_small, "-too-small")
        if too_small and not was:
            self._previous_focus = self.screen.focused
        elif was and not too_small and self.screen.focused is None:
            kept, self._previous_focus = self._previous_focus, None
            self.screen.set_focus(kept if kept is not None and kept.is_attached else self.table)

    def _share_room(self) -> None:
        """On top of each other, give the list the height that the user chose; else what it needs, and at most half."""
        height = self._room.height - 2
        beside = self.has_class("-beside") or self.has_class("-no-preview")
        needed = len(self.table.items) + 1 if self.table.items else len(self.table.nothing()) + 2
        needed += self.filter_bar.has_class("-shown") + self.tab_bar.has_class("-shown")
        if self.split.height:
            needed, most = height * self.split.height // 100, height - LEAST_ROWS
        else:
            most = height // 2
        wanted = 0 if beside else min(max(LEAST_ROWS, needed), max(5, most))
        if wanted != self._rows_given:
            self._rows_given = wanted
            self.side.styles.height = wanted or "1fr"

    def _update_filter_bar(self) -> None:
        view = self.table.view
        self.filter_counts.use(view.filters, self.table.fleet.sessions)
        counted = zip(view.filters, self.filter_counts.counts(), strict=True)
        tabs = [(each.name, each.text, count) for each, count in counted]
        self.tab_bar.show((("all", "", len(self.table.fleet.sessions)), *tabs), view.filter)
        text = view.filter
        shown = len(self.table.shown()) if text else 0
        self.filter_bar.show_count(text, shown, len(self.table.fleet.sessions))

    def _preview_selected(self) -> None:
        kept = self.preview.session.id if self.focused_inside and self.preview.session else self.pinned
        wanted = kept or self.table.selected
        session = None if wanted is None else self.table.session(wanted)
        if session is None and kept is not None and not self.focused_inside:
            self.pinned = None
            self.table.pin(None)
        self.preview.head.branch = None if session is None else self.table.branches.get(session.id)
        self.preview.session = session

    def _count(self, at_once: bool = False) -> None:
        now = self.clock.ticking()
        if at_once or now - self._counted_at >= TOTALS_S:
            self._counted_at = now
            limits = self.tally.limits(self.clock.now())
            self.top_bar.counted = TopBarContent(
                self.tally.totals(), len(self.tally), *self._machines, *self._memory, limits
            )


def _percent(part: int, whole: int) -> int:
    """Return the smallest percentage of *whole* that yields *part*."""
    return -(-part * 100 // max(whole, 1))
