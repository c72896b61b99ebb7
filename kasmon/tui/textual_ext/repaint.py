"""Repaint without waiting for Textual's next frame, so that typed keys appear at once.

Textual 8.2 paints on a 60 Hz timer and renders every widget for it; an uncovered widget needs only its own rows. This
runs Textual's own steps for these rows at once.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from textual._compositor import CompositorUpdate
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

PAUSE_S: Final = 0.006
"""Minimum time since the last paint for an immediate one, in seconds; a flood is painted by the timer."""


class RowsUpdate(CompositorUpdate):
    """Some rows of the screen: column, line and cells of each."""

    def __init__(self, rows: Sequence[tuple[int, int, Strip]]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for x, y, strip in self.rows:
            yield Control.move_to(x, y).segment
            yield from strip

    def render_segments(self, console: Console) -> str:
        return "".join(f"\x1b[{y + 1};{x + 1}H{strip.render(console)}" for x, y, strip in self.rows)


class ImmediatePainter:
    """Paints one widget's regions at once if that is possible and useful, else with the next frame."""

    def __init__(self) -> None:
        self._painted_at = 0.0

    def paint(self, widget: Widget, regions: Sequence[Region]) -> bool:
        """Return whether it was painted at once; regions are relative to the widget's content and lie in it."""
        now = time.monotonic()
        if now - self._painted_at > PAUSE_S:
            with contextlib.suppress(AttributeError):  # another Textual version: its next frame paints
                in_widget = [region.translate(widget.content_offset) for region in regions]
                if (place := _find_place(widget, in_widget)) is not None:
                    widget._styles_cache.set_dirty(*in_widget)
                    rows = [
                        (place.x + region.x, place.y + region.y + number, strip)
                        for region in in_widget
                        for number, strip in enumerate(widget.render_lines(region))
                    ]
                    widget.app._display(widget.screen, RowsUpdate(rows))
                    self._painted_at = now
                    return True
        widget.refresh(*regions)
        return False


def runs(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ordered *rows* as runs: the first of each, and its length."""
    for _, run in groupby(enumerate(rows), lambda each: each[1] - each[0]):
        numbers = [row for _, row in run]
        yield numbers[0], len(numbers)


def _find_place(widget: Widget, regions: Sequence[Region]) -> Region | None:
    """Return the screen region of *widget*, if no frame is due, it is all visible, and these regions are uncovered."""
    screen = widget.screen
    if widget.app._batch_count or screen._layout_required or screen._repaint_required or widget._layout_required:
        return None
    if not screen.is_active:
        return None
    visible = screen._compositor.visible_widgets
    if widget not in visible:
        return None
    place, clip = visible[widget]
    if not clip.contains_region(place):
        return None
    wanted = Region.from_union(regions).translate(place.offset)
    for other, (region, its_clip) in visible.items():  # from front to back
        if other is widget:
            return place
        if wanted.overlaps(region.intersection(its_clip)):
            return None
    return None
