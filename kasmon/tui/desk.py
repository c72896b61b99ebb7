"""The main screen's furniture: totals, list, preview, notices, keys. It lays itself out by the room there is."""

from typing import Final

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.tui.bars import Banner, Counted, KeyBar, TopBar
from kasmon.tui.clock import Clock
from kasmon.tui.filter import FilterBar
from kasmon.tui.fleet import ListHeader, SessionTable
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look
from kasmon.tui.messages import (
    FilterChanged,
    FilterLeft,
    PlaceChanged,
    SessionSelected,
    SortWanted,
    StateClicked,
)
from kasmon.tui.order import Change, View, difference
from kasmon.tui.preview import Content, Preview, TerminalInside
from kasmon.tui.tally import Tally
from kasmon.tui.thrift import PlainContainer, PlainVertical

LEAST_WIDTH: Final = 40
LEAST_HEIGHT: Final = 10
BESIDE_WIDTH: Final = 140
"""From this width on the preview stands beside the list, else below it."""
TOTALS_S: Final = 0.5
"""The totals are counted at most once in so long, in seconds."""


class TooSmall(Widget):
    """A plain sentence, for a window that is too small for anything else."""

    def __init__(self, look: Look) -> None:
        super().__init__(id="too-small")
        self.look = look

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = (
            f"kasmon needs {LEAST_WIDTH} x {LEAST_HEIGHT} cells;",
            f"this is {width} x {self.size.height}.",
        )
        return self.look.strip([(lines[y] if y < len(lines) else "", "text")], width)


class Desk(PlainContainer):
    """Everything on the main screen. Gets the fleet and the view; tells nobody but by its widgets' messages."""

    def __init__(self, look: Look, clock: Clock, make_inside: Content) -> None:
        super().__init__(id="desk")
        self.look, self.clock = look, clock
        self.top_bar = TopBar(look, id="totals")
        self.table = SessionTable(look, clock)
        self.table_header = ListHeader(self.table)
        self.filter_bar = FilterBar(look)
        self.tally = Tally()
        self.preview = Preview(look, clock, make_inside)
        self.banner = Banner(look, id="banner")
        self.key_bar = KeyBar(look, id="keys")
        self.small = TooSmall(look)
        self.side = PlainVertical(id="side")
        self.preview_wanted = True
        self.has_nobody = False
        """There is no session: nothing to look at, and the list says how to begin."""
        self.pinned: SessionId | None = None
        self.focused_inside = False
        self._kept_focus: Widget | None = None
        """What had the keyboard when the window became too small for it."""
        self._counted_at = float("-inf")
        self._rows_given = -1

    def compose(self) -> ComposeResult:
        yield self.top_bar
        with PlainContainer(id="middle"):
            with self.side:
                yield self.filter_bar
                yield self.table_header
                yield self.table
            yield self.preview
        yield self.banner
        yield self.key_bar
        yield self.small

    def on_mount(self) -> None:
        self.app.screen_change_signal.subscribe(self, lambda _screen: self._tell_place())

    def on_descendant_focus(self) -> None:
        self._tell_place()

    def _tell_place(self) -> None:
        self.post_message(PlaceChanged())

    def take(self, fleet: Fleet, change: Change | None = None) -> None:
        """Show *fleet*."""
        change = change or difference(self.table.fleet, fleet)
        self.table.take(fleet, change)
        self.tally.take(change.changed, change.gone)
        self._count()
        self._tell_filter()
        self._preview_selected()
        if self.has_nobody is bool(fleet.sessions):
            self.has_nobody = not fleet.sessions
            self._lay_out()
        self._share_room()

    def tick(self) -> None:
        """A second passed."""
        self.table.tick()
        self._count()
        self.preview.head.tick()
        self._share_room()

    def look_at(self, view: View) -> None:
        """Show the list under *view* from now on."""
        self.table.look_at(view)
        self._tell_filter()
        self.table_header.refresh()
        self._count(at_once=True)
        self._share_room()

    def dress(self, look: Look) -> None:
        """Draw with *look* from now on."""
        self.look = self.small.look = look
        self.top_bar.dress(look)
        self.table.dress(look)
        self.table_header.refresh()
        self.preview.dress(look)
        self.filter_bar.words.dress(look)
        self.banner.dress(look)
        self.key_bar.dress(look)

    def toggle_preview(self) -> None:
        self.preview_wanted = not self.preview_wanted
        self._lay_out()

    def pin(self) -> None:
        """Keep the selected session in the preview, or let go of the one that is kept."""
        self.pinned = None if self.pinned is not None else self.table.selected
        self.table.pin(self.pinned)
        self.preview.head.pinned = self.pinned is not None
        self._preview_selected()

    def enter(self, session: SessionId) -> None:
        """Give the whole middle to this session's inside."""
        self.focused_inside = True
        self.table.select(session)
        self.preview.session = self.table.session(session)
        self.preview.build()
        self._lay_out()

    def leave(self) -> None:
        """Back to the list."""
        self.focused_inside = False
        self._lay_out()
        self._preview_selected()
        self.screen.set_focus(self.table)

    def begin_filter(self, keys: Keys) -> None:
        """Take what to narrow the list to."""
        self.filter_bar.begin(keys)
        self._share_room()

    def show_all(self) -> None:
        """Narrow the list to nothing."""
        self.look_at(msgspec.structs.replace(self.table.view, filter=""))

    def on_filter_changed(self, message: FilterChanged) -> None:
        message.stop()
        self.look_at(msgspec.structs.replace(self.table.view, filter=message.text))

    def on_state_clicked(self, message: StateClicked) -> None:
        """Narrow the list to this state, or show all again. Not while somebody writes there, or is inside."""
        message.stop()
        if self.filter_bar.box is None and not self.focused_inside:
            text, view = f"state:{message.state}", self.table.view
            self.look_at(msgspec.structs.replace(view, filter="" if view.filter == text else text))

    def on_sort_wanted(self, message: SortWanted) -> None:
        message.stop()
        self.look_at(msgspec.structs.replace(self.table.view, sort=message.sort))

    def on_filter_left(self, message: FilterLeft) -> None:
        message.stop()
        if not message.kept:
            self.show_all()
        self.filter_bar.end()
        self._share_room()
        self.screen.set_focus(self.table)

    def on_session_selected(self, message: SessionSelected) -> None:
        """In here, not in the app: what the desk itself makes a widget post comes no further than the desk."""
        message.stop()
        self._preview_selected()
        self._tell_place()

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    @property
    def _room(self) -> Size:
        """What it was given. While a window changes, the app knows of a later size, of which nobody may ever hear."""
        return self.size or self.app.size

    def _lay_out(self) -> None:
        width, height = self._room
        self._be_too_small(width < LEAST_WIDTH or height < LEAST_HEIGHT)
        self.set_class(width >= BESIDE_WIDTH, "-beside")
        has_room = height >= 16 or width >= BESIDE_WIDTH
        self.set_class(self.has_nobody or not (self.preview_wanted and has_room), "-no-preview")
        self.set_class(self.focused_inside, "-inside")
        self.set_class(self.focused_inside and isinstance(self.preview.inside, TerminalInside), "-terminal")
        self._rows_given = -1
        self._share_room()

    def _be_too_small(self, too_small: bool) -> None:
        """Textual takes the keyboard from what it hides; what had it gets it back, or else the list."""
        was = self.has_class("-too-small")
        self.set_class(too_small, "-too-small")
        if too_small and not was:
            self._kept_focus = self.screen.focused
        elif was and not too_small and self.screen.focused is None:
            kept, self._kept_focus = self._kept_focus, None
            self.screen.set_focus(kept if kept is not None and kept.is_attached else self.table)

    def _share_room(self) -> None:
        """Below each other, the list gets what it needs, and at most half."""
        room = self._room.height - 2
        beside = self.has_class("-beside") or self.has_class("-no-preview")
        needed = len(self.table.items) + 1 if self.table.items else len(self.table.nothing()) + 2
        needed += self.filter_bar.has_class("-shown")
        wanted = 0 if beside else min(max(4, needed), max(5, room // 2))
        if wanted != self._rows_given:
            self._rows_given = wanted
            self.side.styles.height = wanted or "1fr"

    def _tell_filter(self) -> None:
        text = self.table.view.filter
        shown = len(self.table.shown()) if text else 0
        self.filter_bar.tell(text, shown, len(self.table.fleet.sessions))

    def _preview_selected(self) -> None:
        kept = self.preview.session.id if self.focused_inside and self.preview.session else self.pinned
        wanted = kept or self.table.selected
        session = None if wanted is None else self.table.session(wanted)
        if session is None and kept is not None and not self.focused_inside:
            self.pinned = None
            self.table.pin(None)
        self.preview.session = session

    def _count(self, at_once: bool = False) -> None:
        now = self.clock.ticking()
        if at_once or now - self._counted_at >= TOTALS_S:
            self._counted_at = now
            self.top_bar.counted = Counted(self.tally.totals(), len(self.tally))
