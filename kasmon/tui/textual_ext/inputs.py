"""Boxes that people write in, which act on each key before they take the next; see `ordered_input.act`."""

from collections.abc import Sequence

from textual import events
from textual.suggester import SuggestFromList
from textual.widgets import Input, TextArea

from kasmon.tui.textual_ext.ordered_input import act


class LineBox(Input):
    """One line."""

    async def _on_key(self, event: events.Key) -> None:
        await act(self, event)


class EditBox(TextArea):
    """Many lines."""

    async def _on_key(self, event: events.Key) -> None:
        await act(self, event)


class LineInput(LineBox):
    """One line to write."""

    def __init__(self, text: str = "", placeholder: str = "", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(text, placeholder=placeholder, id=id, compact=True)
        self.cursor_blink = False

    def stand_in(self, text: str) -> None:
        """Show *text*, as plain text, while nothing is written: it is what an empty box means."""
        self.set_reactive(LineInput.placeholder, text)
        self.refresh()

    def complete(self, words: Sequence[str], placeholder: str) -> None:
        """Complete what is written by one of *words*; say *placeholder* while nothing is."""
        self.suggester, self.placeholder = SuggestFromList(words), placeholder
