"""Captures one pane's screen after it printed, as often as its viewers can use it.

kasmon's tmux neither sets the clipboard of attached terminals nor reports (before 3.6) the cursor's shape: both are
read from the pane's output. A query for the clipboard's content is never answered.
"""

import asyncio
import base64
import binascii
import functools
import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kasmon.backends.tmux.pane_events import PaneListener
from kasmon.backends.tmux.server_connection import ServerConnection
from kasmon.errors import KasmonError
from kasmon.host.terminal.row_styles import StyledRows
from kasmon.sanitize import outgoing
from kasmon.terminal_text.sequences import Grammar, SequenceScanner
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import PaneRow, PaneScreen
from kasmon.tmux.formats import ScreenFacts

CLIPBOARD_BYTES: Final = 100_000
"""The longest text, in bytes, that a program may put on the clipboard."""
_LONGEST: Final = CLIPBOARD_BYTES * 4 // 3 + 64

_CLIPBOARD: Final = b"]52;"
_SIGNS: Final = Grammar((_CLIPBOARD,), rb"\[[0-6]? q|c|\[!p", longest_bytes=_LONGEST)
_SELECTION: Final = re.compile(rb"[cpqs0-7]{0,12};")
_SHAPES: Final = {b"3": "underline", b"4": "underline", b"5": "bar", b"6": "bar"}


class ClipboardText(NamedTuple):
    """A text for the clipboard; None if it is longer than allowed."""

    text: str | None


class EscapeScanner:
    """Reads one pane's output, in pieces of any size."""

    def __init__(self) -> None:
        self.shape = ""
        """`underline`, `bar`, or `block`; empty until the program set it."""
        self._scanner = SequenceScanner(_SIGNS)

    def feed(self, data: bytes) -> list[ClipboardText]:
        """Return what *data* puts on the clipboard, in order. Empty *data* means that some output was missed."""
        if not data:
            self._scanner.rest = b""
        if not self._scanner.rest and b"\x1b" not in data:
            return []
        clips: list[ClipboardText] = []
        for introducer, text in self._scanner.feed(data):
            if introducer != _CLIPBOARD:
                self.shape = _SHAPES.get(introducer[1:2], "block")
            elif (clip := _read(text)) is not None:
                clips.append(clip)
        return clips


def _read(payload: bytes | None) -> ClipboardText | None:
    """Return the text in *payload*, `c;` and Base64; None for a query, an empty text, or no text."""
    if payload is None:
        return ClipboardText(None)
    selection = _SELECTION.match(payload)
    if selection is None:
        return None
    try:
        text = outgoing(base64.b64decode(payload[selection.end() :], validate=True).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return None
    if len(text.encode()) > CLIPBOARD_BYTES:
        return ClipboardText(None)
    return ClipboardText(text) if text else None


FOLLOW_S: Final = 0.006
"""In focus the cursor's row is captured at once, and the whole screen this much later."""
FOCUS_GAP_S: Final = 0.016
"""The shortest time between two whole screens."""
FLOOD_GAP_S: Final = 0.040
"""Likewise, of a pane that prints continuously."""
ROW_GAP_S: Final = 0.010
BUSY: Final = 4
"""How many whole screens in a row must be outdated by new output for a pane to print continuously."""


class ScreenObserver(Protocol):
    @property
    def gap_s(self) -> float:
        """How long a screen is new enough, in seconds: 0 in focus, infinity for a slow viewer."""

    def handle_screen(self) -> None: ...

    def handle_clipboard(self, text: str | None) -> None:
        """Handle *text* that the program copies to the clipboard; None if it is too long."""

    def handle_end(self, why: str) -> None: ...


class ScreenCapture(PaneListener):
    """The newest screen of the pane with the id *pane*, for all its viewers."""

    def __init__(self, line: ServerConnection, pane: str) -> None:
        self.on_closed: Callable[[], None] = lambda: None
        """Called when the pane no longer exists; its owner then closes the capture."""
        self.line = line
        self.pane = pane
        self.styled_rows = StyledRows()
        self.facts: ScreenFacts | None = None
        """None before the first screen."""
        self.escape_scanner = EscapeScanner()
        self._viewers: dict[ScreenObserver, None] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stale = True
        self._is_hurried = False
        self._is_capturing = self._is_capturing_row = False
        self._taken_at = self._row_at = -math.inf
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        line.listeners.listen(pane, self)

    def add(self, viewer: ScreenObserver) -> None:
        """Add *viewer*; it is called as soon as there is a screen."""
        if viewer not in self._viewers:
            self._viewers[viewer] = None
            self.line.watch(self.pane, +1)
        self._hurry()
        if self.facts is not None and not self._is_stale:
            viewer.handle_screen()
        self.plan()

    def drop(self, viewer: ScreenObserver) -> None:
        """Remove *viewer*; idempotent."""
        if viewer in self._viewers:
            del self._viewers[viewer]
            self.line.watch(self.pane, -1)
            self._hurry()

    def close(self, why: str) -> None:
        """Stop capturing, and report *why* to the viewers."""
        self.line.listeners.unlisten(self.pane, self)
        if self._timer is not None:
            self._timer.cancel()
        for viewer in list(self._viewers):
            self.drop(viewer)
            viewer.handle_end(why)

    def renew(self) -> None:
        """Capture the screen again soon in any case, for example after a resize."""
        self._is_stale = True
        self.plan()

    def handle_output(self, data: bytes) -> None:
        """Plan to read the rows from tmux again; *data* itself, a chunk of output, is only searched for signals.

        tmux is the terminal emulator: `plan` asks it for rows with styles, and the dashboard draws those
        (`kasmon/tui/terminal/sgr.py`).
        """
        self._is_stale = True
        for clip in self.escape_scanner.feed(data):
            for viewer in list(self._viewers):
                viewer.handle_clipboard(clip.text)
        if self._viewers:
            self.plan(echo=True)

    def handle_exit(self, status: int | None, number: int | None) -> None:
        self.renew()

    def handle_close(self) -> None:
        self.on_closed()

    def plan(self, *, echo: bool = False, is_scheduled: bool = False) -> None:
        """Capture the whole screen if that is due, or schedule it; called whenever that may have changed.

        Args:
            echo: the pane printed just now, possibly the echo of a key.
            is_scheduled: it was scheduled for now.
        """
        if is_scheduled:
            self._timer = None
        gap_s = min((viewer.gap_s for viewer in self._viewers), default=math.inf)
        if not self._is_stale or gap_s == math.inf:
            return
        now = self._loop.time()
        due_at = self._taken_at + gap_s
        if gap_s == 0:
            due_at = self._taken_at + (FOCUS_GAP_S if self._busy < BUSY else FLOOD_GAP_S)
            if echo and self.facts is not None and self._busy < BUSY:
                due_at = max(due_at, now + FOLLOW_S)
                self._capture_row(now)
        if self._is_capturing:
            return
        if self._timer is not None:
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
            self._timer = None
        if due_at > now:
            self._timer = self._loop.call_at(due_at, functools.partial(self.plan, is_scheduled=True))
            return
        self._is_capturing, self._is_stale, self._taken_at = True, False, now
        self.line.submit(ask.screen(self.pane), self._on_captured)

    def _hurry(self) -> None:
        is_hurried = any(viewer.gap_s == 0 for viewer in self._viewers)
        if is_hurried != self._is_hurried:
            self._is_hurried = is_hurried
            self.line.hurry(+1 if is_hurried else -1)

    def _on_captured(self, screen: PaneScreen | KasmonError) -> None:
        self._is_capturing = False
        if isinstance(screen, KasmonError):
            return
        self.facts = screen.facts
        self.styled_rows.convert(screen.rows, screen.facts.height, screen.facts.joins)
        self._busy = self._busy + 1 if self._is_stale else 0
        for viewer in list(self._viewers):
            viewer.handle_screen()
        self.plan()

    def _capture_row(self, now: float) -> None:
        assert self.facts is not None
        if not self._is_capturing_row and now - self._row_at >= ROW_GAP_S:
            self._is_capturing_row, self._row_at = True, now
            self.line.submit(ask.row(self.pane, self.facts.cursor_y), self._on_row_captured)

    def _on_row_captured(self, row: PaneRow | KasmonError) -> None:
        self._is_capturing_row = False
        if isinstance(row, KasmonError) or self.facts is None:
            return
        if (row.facts.width, row.facts.height) == (self.facts.width, self.facts.height):
            self.facts = row.facts
            self.styled_rows.convert_row(row.y, row.row, row.facts.joins)
            for viewer in list(self._viewers):
                viewer.handle_screen()
            self.plan()
