"""The views of one session's pane: rows changed since a client's last push; a slow client gets only the newest."""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Literal

from kasmon.errors import KasmonError
from kasmon.host.rpc.frames import (
    Blur,
    ClipboardCopy,
    Focus,
    Scroll,
    SubscriptionEnd,
    TerminalCursor,
    TerminalModes,
    TerminalRows,
    Unwatch,
    ViewChange,
    Watch,
)
from kasmon.host.rpc.server import ClientConnection
from kasmon.host.terminal.row_styles import StyledRows
from kasmon.host.terminal.screen_capture import ScreenCapture
from kasmon.model.permission import SessionId
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import PaneScreen
from kasmon.tmux.formats import ScreenFacts

EARLY: Final = 0.8
"""A push may come after this part of its gap: the capture keeps the gap, and timers are not exact."""
TRIES: Final = 4
"""The most captures before a screen is shown that is a few lines off, because new lines keep coming."""


class ScreenStream:
    """One client's view of one session's terminal; at most `rate_hz` pushes a second, each change at once in focus."""

    def __init__(self, connection: ClientConnection, session: SessionId) -> None:
        self.rate_hz: float | None = None
        """0 for each change at once; None for a client that views only while it has the focus."""
        self.has_focus = False
        self._connection = connection
        self._session = session
        self._screen_capture: ScreenCapture | None = None
        self._loop = asyncio.get_running_loop()
        self._is_offered = False
        """Whether a push waits for the client; when the client can take it, it gets the newest rows."""
        self._is_behind = False
        self._pushed_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._sent: TerminalRows | None = None
        self._sent_rows: list[str] = []
        self._history: ScrollbackHistory | None = None
        """Set while the client is scrolled up."""

    @property
    def gap_s(self) -> float:
        """How long a screen is new enough for this client, in seconds; infinity while it is behind."""
        if self._is_offered:
            return math.inf
        return 0.0 if self.has_focus or not self.rate_hz else 1 / self.rate_hz

    def view(self, screen_capture: ScreenCapture | None) -> None:
        """View *screen_capture*, or nothing. Call again after a change of rate or focus."""
        if self._screen_capture is not None and self._screen_capture is not screen_capture:
            self._screen_capture.drop(self)
        if self._screen_capture is not screen_capture:
            self._screen_capture, self._history, self._sent = screen_capture, None, None
        if screen_capture is not None:
            screen_capture.add(self)

    def push_all(self) -> None:
        """Push every row: the client has none."""
        self._sent = None
        if self._screen_capture is not None and self._screen_capture.facts is not None:
            self.handle_screen(is_renewed=True)

    def close(self) -> None:
        """Stop pushing. Idempotent."""
        self.view(None)
        if self._timer is not None:
            self._timer.cancel()

    def scroll(self, up: int) -> None:
        """Show the lines *up* above the bottom from now on, and keep them in place while new lines come."""
        if self._screen_capture is None or self._screen_capture.facts is None:
            return
        if up > 0:
            self._history = self._history or ScrollbackHistory(
                self._screen_capture, lambda: self.handle_screen(is_renewed=True)
            )
            self._history.go(up)
        elif self._history is not None:
            self._history = None
            self.handle_screen()

    def handle_screen(self, *, is_renewed: bool = False) -> None:
        """Push the newest rows now, or as soon as the rate allows it.

        While the client is scrolled up, the lines that it sees are captured first, unless they are new (*is_renewed*).
        """
        if self._history is not None and not is_renewed:
            self._history.renew()
            return
        if self._timer is not None or self._is_offered:
            return
        due_at = self._pushed_at + self.gap_s * EARLY
        if due_at > self._loop.time():
            self._timer = self._loop.call_at(due_at, self._handle_due)
            return
        self._is_offered = True
        self._connection.push(self._pop_rows, key=("rows", self._session))
        self._is_behind = self._is_offered

    def _handle_due(self) -> None:
        self._timer = None
        self.handle_screen(is_renewed=True)

    def handle_clipboard(self, text: str | None) -> None:
        """Push the clipboard *text* to a client with the focus: for others it would be unexpected."""
        if self.has_focus:
            self._connection.push(ClipboardCopy(session=self._session, text=text), key=("clipped", self._session))

    def handle_end(self, why: str) -> None:
        self._screen_capture = self._history = self._sent = None
        self._connection.push(SubscriptionEnd(session=self._session, why=why), key=("gone", self._session))

    def _pop_rows(self) -> TerminalRows | None:
        """Return the rows that the client lacks, at the moment at which it can take them."""
        self._is_offered, self._pushed_at = False, self._loop.time()
        if self._is_behind and self._screen_capture is not None:
            self._loop.call_soon(self._screen_capture.plan)
        self._is_behind = False
        if self._screen_capture is None or self._screen_capture.facts is None:
            return None
        styled_rows, facts, up = self._screen_capture.styled_rows, self._screen_capture.facts, 0
        if self._history is not None and self._history.facts is not None:
            styled_rows, facts, up = self._history.styled_rows, self._history.facts, self._history.up
        before, sent = self._sent, self._sent_rows
        full = before is None or (before.columns, before.height) != (facts.width, facts.height)
        changed = tuple((y, row) for y, row in enumerate(styled_rows.rows) if full or sent[y] != row)
        rows = TerminalRows(
            session=self._session,
            columns=facts.width,
            height=facts.height,
            changed=changed,
            cursor=cursor_of(facts, self._screen_capture.escape_scanner.shape),
            modes=modes_of(facts),
            full=full,
            scrolled=up,
            history=facts.history,
        )
        if before is not None and not changed and _beside(rows) == _beside(before):
            return None
        self._sent, self._sent_rows = rows, list(styled_rows.rows)
        return rows


def cursor_of(facts: ScreenFacts, printed: str = "") -> TerminalCursor:
    """Return the cursor; its shape as *printed* by the program, if tmux does not report it."""
    shape = facts.cursor_shape or printed
    shape = shape if shape in ("underline", "bar") else "block"
    return TerminalCursor(facts.cursor_x, facts.cursor_y, facts.cursor_visible and not facts.is_dead, shape)


def modes_of(facts: ScreenFacts) -> TerminalModes:
    """Return the terminal modes that the program of that screen set."""
    mouse: Literal["", "standard", "button", "all"] = "standard" if facts.mouse_standard else ""
    if facts.mouse_all or facts.mouse_button:
        mouse = "all" if facts.mouse_all else "button"
    return TerminalModes(
        mouse=mouse,
        mouse_sgr=facts.mouse_sgr,
        cursor_keys=facts.application_cursor,
        keypad=facts.application_keypad,
        alternate=facts.alternate,
        copy_mode=facts.in_mode,
    )


def _beside(rows: TerminalRows) -> tuple[object, ...]:
    return rows.cursor, rows.modes, rows.scrolled, rows.history


class ScrollbackHistory:
    """A client's position in the lines above a screen: it keeps its lines while new ones come below.

    Captures what *screen_capture*'s pane has scrolled off; *on_change* is called with each capture.
    """

    def __init__(self, screen_capture: ScreenCapture, on_change: Callable[[], None]) -> None:
        self.styled_rows = StyledRows()
        self.facts: ScreenFacts | None = None
        """None before the first capture."""
        self.up = 0
        """How many lines above the bottom the capture begins."""
        self._screen_capture = screen_capture
        self._on_change = on_change
        self._wanted = self._grown = 0
        self._length = screen_capture.facts.history if screen_capture.facts is not None else 0
        self._is_taking = self._is_stale = False

    def go(self, up: int) -> None:
        """Show the lines *up* above the bottom, not counting the lines that came since this began."""
        self._wanted = up
        self.renew()

    def renew(self) -> None:
        if self._is_taking:
            self._is_stale = True
        else:
            self._capture(TRIES)

    def _capture(self, tries: int) -> None:
        now = self._screen_capture.facts
        if now is None:
            return
        self._is_taking, self._is_stale = True, False
        up = 0 if now.alternate else min(self._wanted + self._grown, max(now.history, self._length))
        request = ask.scrolled(self._screen_capture.pane, up, now.height)
        self._screen_capture.line.submit(request, lambda screen: self._handle_screen(screen, up, tries - 1))

    def _handle_screen(self, screen: PaneScreen | KasmonError, up: int, tries: int) -> None:
        self._is_taking = False
        if isinstance(screen, KasmonError):
            return
        grown, self._length = max(screen.facts.history - self._length, 0), screen.facts.history
        self._grown += grown
        if grown and tries:  # lines came since the request: the wanted ones are higher now
            self._capture(tries)
            return
        self.facts, self.up = screen.facts, up
        self.styled_rows.convert(screen.rows, screen.facts.height, screen.facts.joins)
        self._on_change()
        if self._is_stale or grown:
            self.renew()


NO_PANE: Final = "its pane no longer exists"


class ScreenStreams:
    """The views of *session*, one for each viewer; *screen_capture* is of its pane, None without one."""

    def __init__(self, session: SessionId) -> None:
        self.screen_capture: ScreenCapture | None = None
        self._session = session
        self._views: dict[ClientConnection, ScreenStream] = {}

    @property
    def has_focus(self) -> bool:
        return any(view.has_focus for view in self._views.values())

    def view(self, screen_capture: ScreenCapture) -> None:
        """View *screen_capture* from now on."""
        self.screen_capture = screen_capture
        for view in self._views.values():
            view.view(screen_capture)

    def show(self, connection: ClientConnection, frame: ViewChange) -> None:
        view = self._views.get(connection)
        match frame:
            case Watch(rate_hz=rate_hz):
                if view is not None:
                    view.push_all()
                view = view or self._view(connection)
                view.rate_hz = max(rate_hz, 0.0)
                self._begin(view)
            case Focus():
                view = view or self._view(connection)
                view.has_focus = True
                self._begin(view)
            case Blur():
                if view is not None:
                    view.has_focus = False
                    view.scroll(0)
                    view.view(self.screen_capture)
                    if view.rate_hz is None:
                        self.leave(connection)
            case Unwatch():
                if view is not None:
                    view.rate_hz = None
                    if not view.has_focus:
                        self.leave(connection)
            case Scroll(up=up):
                if view is not None:
                    view.scroll(up)

    def scroll_down(self, connection: ClientConnection) -> None:
        """Scroll the view of *connection* to the end of the buffer."""
        if (view := self._views.get(connection)) is not None:
            view.scroll(0)

    def leave(self, connection: ClientConnection) -> None:
        """Remove the view of *connection*. Idempotent."""
        if (view := self._views.pop(connection, None)) is not None:
            view.close()

    def close(self) -> None:
        """Close all views. Idempotent."""
        for view in self._views.values():
            view.close()

    def _view(self, connection: ClientConnection) -> ScreenStream:
        view = self._views[connection] = ScreenStream(connection, self._session)
        return view

    def _begin(self, view: ScreenStream) -> None:
        if self.screen_capture is None:
            view.handle_end(NO_PANE)
        else:
            view.view(self.screen_capture)
