"""The dashboard's main screen: Textual's, with two fixes for version 8.2.8.

Textual forgets which widgets wait for a repaint if any
widget requests a layout in the same frame (`Screen._on_timer_update`): rows that came while a dialog was open stayed
unpainted.

It reports a new widget its size only if its map of the screen does not contain the widget yet, and looking a widget up
may have added it before (`Compositor.full_map`): a transcript stayed blank until the window changed its size.
"""

from textual import events
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from kasmon.tui.textual_ext.strips import UniformLinesMixin


class FullRedrawMixin:
    """A screen that is redrawn whole after a resize event, even if its size is unchanged.

    Textual merges resize events: a window that was briefly small has lost its content, and nothing would be drawn. It
    also sets the styles of a new screen twice: when its widgets are mounted, and again before its first frame.
    """

    _drawn_for: Size | None = None

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Keep the styles of a new screen; runs before Textual's method of this name."""
        assert isinstance(self, Screen)
        event.refresh_styles = event.refresh_styles and bool(self.stack_updates)

    async def _on_resize(self, event: events.Resize) -> None:
        """Redraw if the size is unchanged; runs in addition to Textual's method of this name."""
        assert isinstance(self, Screen)
        if event.size == self._drawn_for:
            self.refresh(layout=True)
        self._drawn_for = event.size


class MainScreen(FullRedrawMixin, UniformLinesMixin, Screen[None]):
    """Textual's screen; pending repaints are kept, and every widget gets its first size."""

    _placed: frozenset[Widget] = frozenset()
    """The widgets whose size a layout has reported to them."""

    def _on_timer_update(self) -> None:
        waiting = {*self._dirty_widgets} if self._layout_required else set()
        super()._on_timer_update()
        if waiting:
            self._dirty_widgets.update(widget for widget in waiting if widget.is_mounted)
            self.check_idle()

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        known = self._compositor._full_map
        if any(widget not in self._placed for widget in known):
            self._compositor._full_map = {widget: place for widget, place in known.items() if widget in self._placed}
        super()._refresh_layout(size, scroll)
        if not scroll:
            self._placed = frozenset(self._compositor._full_map)
