"""A repaint that does not wait for Textual's next frame: what makes a typed key come back at once.

Textual 8.2 paints on a 60 Hz timer; its own steps, taken here and now, save up to 10 ms a key (`_set_dirty`,
`_compositor.update_widgets`, `_compositor_refresh`; private names, so `tests/tui/test_terminal.py` holds them).
"""

import time
from collections.abc import Sequence
from typing import Final

from textual.geometry import Region
from textual.widget import Widget

PAUSE_S: Final = 0.006
"""A flood is painted by the timer: nothing is painted at once within this time of the last paint."""


class Brush:
    """Paints one widget's regions at once where that is possible and useful, else with the next frame."""

    def __init__(self) -> None:
        self._painted_at = 0.0

    def paint(self, widget: Widget, regions: Sequence[Region]) -> bool:
        """Whether it was painted at once; regions count from the widget's content."""
        now = time.monotonic()
        if now - self._painted_at > PAUSE_S and self._painted(widget, regions):
            self._painted_at = now
            return True
        widget.refresh(*regions)
        return False

    def _painted(self, widget: Widget, regions: Sequence[Region]) -> bool:
        screen = widget.screen
        try:
            waiting = (
                widget.app._batch_count
                or screen._layout_required
                or screen._repaint_required
                or widget._layout_required
                or widget not in screen._compositor.visible_widgets
            )
            if waiting or not screen.is_active:
                return False
            widget._set_dirty(*regions)
            # What else waits for the next frame is painted with it: `_compositor_refresh` forgets all that waits.
            screen._compositor.update_widgets({widget, *screen._dirty_widgets})
            screen._compositor_refresh()
        except AttributeError:  # another Textual: its next frame paints
            return False
        return True
