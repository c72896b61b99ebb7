"""Takes pictures of one pane: when it printed, and as often as those who look at it can use them."""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

from kasmon.backends.tmux import PaneListener, ServerConnection
from kasmon.errors import KasmonError
from kasmon.host.terminal.escape_scanner import EscapeScanner
from kasmon.host.terminal.row_styles import StyledRows
from kasmon.tmux import requests as ask
from kasmon.tmux.formats import ScreenFacts
from kasmon.tmux.requests import PaneRow, PaneScreen

FOLLOW_S: Final = 0.006
"""In focus the cursor's row is taken at once, and the whole screen so long after it."""
FOCUS_GAP_S: Final = 0.016
"""The shortest time between two whole screens."""
FLOOD_GAP_S: Final = 0.040
"""Likewise, of a pane that does not stop printing."""
ROW_GAP_S: Final = 0.010
BUSY: Final = 4
"""A pane that has printed again at so many whole screens on end does not stop printing."""


class ScreenObserver(Protocol):
    """Somebody who looks at the pictures."""

    @property
    def gap_s(self) -> float:
        """How long a picture is new enough, in seconds: 0 in focus, infinity for one who is behind."""
        ...

    def shown(self) -> None:
        """There is a new picture."""
        ...

    def clipped(self, text: str | None) -> None:
        """The program puts *text* on the clipboard; None where that is too long."""
        ...

    def gone(self, why: str) -> None:
        """There is no pane any more."""
        ...


class ScreenCapture(PaneListener):
    """The newest picture of the pane with the id *pane*, for all who look at it."""

    def __init__(self, line: ServerConnection, pane: str) -> None:
        self.on_closed: Callable[[], None] = lambda: None
        """Called when the pane is not there any more; whoever made the camera closes it."""
        self.line = line
        self.pane = pane
        self.sheet = StyledRows()
        self.facts: ScreenFacts | None = None
        """None before the first picture."""
        self.signs = EscapeScanner()
        self._viewers: dict[ScreenObserver, None] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stale = True
        self._is_hurried = False
        self._is_taking = self._is_taking_row = False
        self._taken_at = self._row_at = -math.inf
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        line.listen(pane, self)

    def add(self, viewer: ScreenObserver) -> None:
        """From now on *viewer* looks; it is told as soon as there is a picture."""
        if viewer not in self._viewers:
            self._viewers[viewer] = None
            self.line.watch(self.pane, +1)
        self._hurry()
        if self.facts is not None and not self._is_stale:
            viewer.shown()
        self.plan()

    def drop(self, viewer: ScreenObserver) -> None:
        """It looks no more; idempotent."""
        if viewer in self._viewers:
            del self._viewers[viewer]
            self.line.watch(self.pane, -1)
            self._hurry()

    def close(self, why: str) -> None:
        """Take no more pictures, and say so to who looks."""
        self.line.unlisten(self.pane, self)
        if self._timer is not None:
            self._timer.cancel()
        for viewer in list(self._viewers):
            self.drop(viewer)
            viewer.gone(why)

    def renew(self) -> None:
        """Whatever there was, take a new picture soon: the pane was resized, say."""
        self._is_stale = True
        self.plan()

    def printed(self, data: bytes) -> None:
        self._is_stale = True
        for clip in self.signs.feed(data):
            for viewer in list(self._viewers):
                viewer.clipped(clip.text)
        if self._viewers:
            self.plan(echo=True)

    def died(self, status: int | None, number: int | None) -> None:
        self.renew()

    def closed(self) -> None:
        self.on_closed()

    def plan(self, *, echo: bool = False) -> None:
        """Take the next picture when one is wanted; called whenever that may have changed.

        Args:
            echo: the pane printed just now, which may be the answer to a key.
        """
        gap_s = min((viewer.gap_s for viewer in self._viewers), default=math.inf)
        if not self._is_stale or gap_s == math.inf:
            return
        now = self._loop.time()
        follow_s = 0.0
        if gap_s == 0:
            gap_s = FOCUS_GAP_S if self._busy < BUSY else FLOOD_GAP_S
            if echo and self.facts is not None and self._busy < BUSY:
                follow_s = FOLLOW_S
                self._take_row(now)
        if not self._is_taking:
            self._at(max(now + follow_s, self._taken_at + gap_s), now)

    def _hurry(self) -> None:
        is_hurried = any(viewer.gap_s == 0 for viewer in self._viewers)
        if is_hurried != self._is_hurried:
            self._is_hurried = is_hurried
            self.line.hurry(+1 if is_hurried else -1)

    def _at(self, when: float, now: float) -> None:
        """Take the whole screen at *when*, or before that if it is to be taken sooner already."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
            self._timer = None
        if when <= now:
            self._take()
        else:
            self._timer = self._loop.call_at(when, self._take)

    def _take(self) -> None:
        self._timer = None
        self._is_taking, self._is_stale, self._taken_at = True, False, self._loop.time()
        self.line.submit(ask.screen(self.pane), self._taken)

    def _taken(self, screen: PaneScreen | KasmonError) -> None:
        self._is_taking = False
        if isinstance(screen, KasmonError):
            return
        self.facts = screen.facts
        self.sheet.take(screen.rows, screen.facts.height, screen.facts.joins)
        self._busy = self._busy + 1 if self._is_stale else 0
        self._show()

    def _take_row(self, now: float) -> None:
        assert self.facts is not None
        if not self._is_taking_row and now - self._row_at >= ROW_GAP_S:
            self._is_taking_row, self._row_at = True, now
            self.line.submit(ask.row(self.pane, self.facts.cursor_y), self._row_taken)

    def _row_taken(self, row: PaneRow | KasmonError) -> None:
        self._is_taking_row = False
        if isinstance(row, KasmonError) or self.facts is None:
            return
        if (row.facts.width, row.facts.height) == (self.facts.width, self.facts.height):
            self.facts = row.facts
            self.sheet.take_row(row.y, row.row, row.facts.joins)
            self._show()

    def _show(self) -> None:
        for viewer in list(self._viewers):
            viewer.shown()
        self.plan()
