"""Text inputs that act on each key before they take the next; see `ordered_input`."""

from collections.abc import Sequence

from textual.suggester import SuggestFromList
from textual.widgets import Input, TextArea

from kasmon.tui.textual_ext.ordered_input import OrderedKeys


class LineBox(OrderedKeys, Input):
    """An input of one line."""


class EditBox(OrderedKeys, TextArea):
    """An input of many lines."""


class LineInput(LineBox):
    """An input of one line with a placeholder and completion."""

    def __init__(self, text: str = "", placeholder: str = "", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(text, placeholder=placeholder, id=id, compact=True)
        self.cursor_blink = False

    def stand_in(self, text: str) -> None:
        """Show *text* as the placeholder: the value that an empty input stands for."""
        self.set_reactive(LineInput.placeholder, text)
        self.refresh()

    def complete(self, words: Sequence[str], placeholder: str) -> None:
        """Complete the text by one of *words*; show *placeholder* while it is empty."""
        self.suggester, self.placeholder = SuggestFromList(words), placeholder
