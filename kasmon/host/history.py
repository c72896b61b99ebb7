"""A client's place in the lines above a screen: it stays with what is shown while new lines come below."""

from collections.abc import Callable
from typing import Final

from kasmon.errors import KasmonError
from kasmon.host.camera import Camera
from kasmon.host.rows import Sheet
from kasmon.tmux import request as ask
from kasmon.tmux.facts import ScreenFacts
from kasmon.tmux.request import Screen

TRIES: Final = 4
"""So many pictures are taken at most before one is shown that is a few lines off, because more lines keep coming."""


class History:
    """Pictures of what *camera*'s pane has scrolled away; *on_change* is called with each."""

    def __init__(self, camera: Camera, on_change: Callable[[], None]) -> None:
        self.sheet = Sheet()
        self.facts: ScreenFacts | None = None
        """None before the first picture."""
        self.up = 0
        """How many lines above the bottom the picture was taken."""
        self._camera = camera
        self._on_change = on_change
        self._wanted = self._grown = 0
        self._length = camera.facts.history if camera.facts is not None else 0
        self._is_taking = self._is_stale = False

    def go(self, up: int) -> None:
        """Show what stands *up* lines above the bottom, not counting the lines that came since this began."""
        self._wanted = up
        self.renew()

    def renew(self) -> None:
        """Take a new picture."""
        if self._is_taking:
            self._is_stale = True
        else:
            self._take(TRIES)

    def _take(self, tries: int) -> None:
        now = self._camera.facts
        if now is None:
            return
        self._is_taking, self._is_stale = True, False
        up = 0 if now.alternate else min(self._wanted + self._grown, max(now.history, self._length))

        def taken(screen: Screen | KasmonError) -> None:
            self._taken(screen, up, tries - 1)

        self._camera.line.submit(ask.scrolled(self._camera.pane, up, now.height), taken)

    def _taken(self, screen: Screen | KasmonError, up: int, tries: int) -> None:
        self._is_taking = False
        if isinstance(screen, KasmonError):
            return
        grown, self._length = max(screen.facts.history - self._length, 0), screen.facts.history
        self._grown += grown
        if grown and tries:  # lines came since we asked: what was to be shown stands higher now
            self._take(tries)
            return
        self.facts, self.up = screen.facts, up
        self.sheet.take(screen.rows, screen.facts.height, screen.facts.joins)
        self._on_change()
        if self._is_stale or grown:
            self.renew()
