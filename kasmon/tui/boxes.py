"""Boxes that people write in, which act on each key before they take the next; see `typed.act`."""

from textual import events
from textual.widgets import Input, TextArea

from kasmon.tui.typed import act


class LineBox(Input):
    """One line."""

    async def _on_key(self, event: events.Key) -> None:
        await act(self, event)


class EditBox(TextArea):
    """Many lines."""

    async def _on_key(self, event: events.Key) -> None:
        await act(self, event)
