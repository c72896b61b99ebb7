"""The screen that the dashboard lies on: Textual's, with a repaint that a layout does not lose.

Textual 8.2.8 forgets which widgets wait for a repaint when any widget asks for a layout in the same frame
(`Screen._on_timer_update`): rows that came while a dialog was open stayed unpainted. Private names, so
`tests/tui/test_board.py` holds them.
"""

from textual.screen import Screen


class Board(Screen[None]):
    """Textual's screen; what waits for a repaint when a layout comes is repainted in the next frame."""

    def _on_timer_update(self) -> None:
        waiting = {*self._dirty_widgets} if self._layout_required else set()
        super()._on_timer_update()
        if waiting:
            self._dirty_widgets.update(widget for widget in waiting if widget.is_mounted)
            self.check_idle()
