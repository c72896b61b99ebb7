"""Text inputs that act on each key before they take the next."""

from collections.abc import Sequence

from textual import events
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, TextArea


class OrderedKeys:
    """A mixin for an input: it handles each key before it takes the next. Precedes Textual's class."""

    def takes(self, event: events.Key) -> bool:
        """Handle *event*; False leaves it to the input's own bindings and text."""
        return False

    async def _on_key(self, event: events.Key) -> None:
        assert isinstance(self, Widget)
        if self.takes(event):
            event.stop()
            event.prevent_default()
        else:
            await act(self, event)


class PasteHandler:
    """A mixin for an input of many lines: it may handle a paste itself. Precedes Textual's class."""

    def takes_paste(self, text: str) -> bool:
        """Handle a paste of *text*; False leaves it to the input."""
        return False

    async def _on_paste(self, event: events.Paste) -> None:
        if self.takes_paste(event.text):
            event.stop()
            event.prevent_default()


def forward_key(widget: Widget, key: events.Key) -> None:
    """Give *key*, which came to its screen, to *widget*."""
    widget._forward_event(key)


async def act(box: Widget, event: events.Key) -> None:
    """Run at once the binding of this key in *box* itself, such as Backspace; other keys are left alone."""
    for binding in box._bindings.key_to_bindings.get(event.key, ()):  # Textual has no public name for them
        event.stop()
        event.prevent_default()
        await box.run_action(binding.action)


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

    def complete(self, candidates: Sequence[str], placeholder: str) -> None:
        """Complete the text by one of *candidates*; show *placeholder* while it is empty."""
        self.suggester, self.placeholder = SuggestFromList(candidates), placeholder
