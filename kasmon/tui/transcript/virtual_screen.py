"""The pyte screen of a structured session: it remembers its rows, so that only changed ones are drawn."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kasmon.model.transcript.text import TextLine, Token
from kasmon.tui.transcript.pyte_screen import PyteBuffer, StyledPiece

StyleOf = Callable[[Token], Style]
StyledRow = tuple[StyledPiece, ...]

_log = logging.getLogger(__name__)


class VirtualScreen:
    """Rows of a fixed size. Text that moved is scrolled, as a terminal does it, and not drawn again.

    An error while drawing costs at most the colours: it is logged, and the screen restarts.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._ground = Style.null()
        self.resize(columns, rows)

    @property
    def size(self) -> tuple[int, int]:
        return self._page.columns, self._page.lines

    def resize(self, columns: int, rows: int) -> None:
        """Clear and resize; the next `show` draws everything."""
        self._page = PyteBuffer(max(columns, 1), max(rows, 1))
        self._shown: list[StyledRow] = [()] * self._page.lines
        self._strips: list[Strip | None] = [None] * self._page.lines

    def show(self, lines: Sequence[TextLine], style_of: StyleOf) -> list[int]:
        """Show *lines* from the top, nothing below them; return the rows whose look changed."""
        rows = [tuple((text, style_of(token)) for text, token in line.spans) for line in lines[: self.size[1]]]
        rows += [()] * (self.size[1] - len(rows))
        changed = [y for y, row in enumerate(rows) if row != self._shown[y]]
        try:
            if len(changed) > 1:
                self._scroll(_moved_up(self._shown, rows))
            for y, row in enumerate(rows):
                if row != self._shown[y]:
                    self._draw(y, row)
        except Exception:  # noqa: BLE001 - pyte's mistakes must not end the dashboard
            _log.exception("drawing failed; restarting without colours")
            self._draw_plainly(rows)
            changed = list(range(len(rows)))
        return changed

    def strip(self, y: int, background: Style | None = None) -> Strip:
        """Return row *y* on *background*, exactly as wide as the screen."""
        if background is not None and background != self._ground:
            self._ground, self._strips = background, [None] * self.size[1]
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = self._page.strip(y).apply_style(self._ground)
        return strip

    def _scroll(self, up: int) -> None:
        """Move everything *up* rows, down if negative; the rows that come in are empty."""
        if not up:
            return
        self._page.scroll(up)
        for rows, empty in ((self._shown, ()), (self._strips, None)):
            _shift(rows, up, empty)

    def _draw(self, y: int, row: StyledRow) -> None:
        self._strips[y] = None
        self._page.write(y, row)
        self._shown[y] = row

    def _draw_plainly(self, rows: Sequence[StyledRow]) -> None:
        self.resize(*self.size)
        for y, row in enumerate(rows):
            text = "".join(text for text, _ in row)
            self._shown[y] = row
            self._strips[y] = Strip([Segment(text)]).adjust_cell_length(self.size[0])


def _moved_up(before: Sequence[StyledRow], after: Sequence[StyledRow]) -> int:
    """Return by how many rows most of *before* moved up in *after*; negative if down, 0 if most is unmoved."""
    stood = {row: y for y, row in enumerate(before) if any(text for text, _ in row)}
    moves = Counter(stood[row] - y for y, row in enumerate(after) if row in stood)
    up, rows = moves.most_common(1)[0] if moves else (0, 0)
    return up if rows > sum(one == other for one, other in zip(before, after, strict=True)) else 0


def _shift(rows: list[Any], up: int, empty: object) -> None:
    kept = rows[up:] if up > 0 else rows[:up]
    blank = [empty] * (len(rows) - len(kept))
    rows[:] = kept + blank if up > 0 else blank + kept
