"""The backdrop of a card or dialog: the screen below, dimmed; only its changed lines are drawn again.

Textual 8.2 redraws all of the screen below, piece by piece, whenever one of its rows changes, and four times before a
new card can be read: three quarters of the time that took.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual._context import visible_screen_stack
from textual.color import Color
from textual.geometry import Region, Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip

KEPT: Final = 1000
"""So many converted styles are cached."""


class Backdrop:
    """A mixin for a screen with a translucent background; precedes Textual's class."""

    _faded: Sequence[Strip] = ()
    _faded_for: Size | None = None
    _shade: "DimFilter | None" = None

    def render_lines(self: Any, crop: Region) -> list[Strip]:
        background: Color = self.styles.background
        below = _below() if 0 < background.a < 1 else None
        if below is None or below is self:
            lines: list[Strip] = super().render_lines(crop)  # type: ignore[misc]  # a screen's, which stands beside this
            return lines
        _lay_out(below)
        size: Size = self.size
        base: Style = self.visual_style.rich_style
        if self._shade is None or not self._shade.is_of(background, base) or self._faded_for != size:
            self._faded_for = size
            self._shade, self._faded = DimFilter(background, base), [Strip.blank(size.width)] * size.height
            self._dirty_regions.add(size.region)
        stale = {y for region in self._dirty_regions for y in region.line_range if 0 <= y < size.height}
        self._dirty_regions.clear()
        for y, strip in _draw_rows(below, stale, size):
            self._faded[y] = self._shade.over(strip)
        lines = [*self._faded, *[Strip.blank(size.width)] * (crop.bottom - size.height)]
        if crop.right > size.width:  # a window that has just grown: Textual accepts no line that is too short
            lines = [line.adjust_cell_length(crop.right) for line in lines]
        return [lines[y].crop(*crop.column_span) for y in crop.line_range]


class DimFilter:
    """Dims lines by blending the translucent *colour* over them; text without a style gets *base*."""

    def __init__(self, colour: Color, base: Style) -> None:
        self._colour, self._base = colour, base
        self._dimmed: dict[Style | None, Style] = {}

    def is_of(self, colour: Color, base: Style) -> bool:
        """Whether it was created with these."""
        return self._colour == colour and self._base == base

    def over(self, strip: Strip) -> Strip:
        """Return *strip*, dimmed and without its click actions."""
        return Strip([Segment(text, self._style(style)) for text, style, _ in strip], strip.cell_length)

    def _style(self, style: Style | None) -> Style:
        known = self._dimmed.get(style)
        if known is None:
            if len(self._dimmed) >= KEPT:
                self._dimmed.clear()
            (faded,) = BackgroundScreen.process_segments([Segment("", style)], self._colour)
            known = self._dimmed[style] = self._base + (faded.style or Style.null())
        return known


def _below() -> Screen[Any] | None:
    """Return the screen below the one being drawn, from Textual's stack while drawing."""
    try:
        return visible_screen_stack.get().pop()
    except LookupError:
        return None


def _lay_out(screen: Screen[Any]) -> None:
    """Lay out *screen* if that is due: Textual does it for the top screen only, and would draw what was removed."""
    widgets = screen._compositor._full_map
    if screen._layout_required or any(widget.parent is None for widget in widgets):
        screen._refresh_layout()
        screen._layout_required = False


def _draw_rows(screen: Screen[Any], lines: set[int], size: Size) -> Iterator[tuple[int, Strip]]:
    if not lines:
        return
    first, last = min(lines), max(lines)
    crop = Region(0, first, size.width, last - first + 1)
    pieces = screen._compositor._render_chops(crop, lines.__contains__)
    for y in sorted(lines.intersection(range(len(pieces)))):
        yield y, Strip.join(pieces[y].values()).adjust_cell_length(size.width)
