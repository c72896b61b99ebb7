"""Typing in order: an input acts on each key before it takes the next.

Textual 8.2.8 sends a key that is not text to the app, which runs its binding. Later keys overtake it: if `lats`, two
Backspaces and `st` come at once, the Backspaces would delete the `st`.
"""

from textual import events
from textual.widget import Widget


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


def forward_key(widget: Widget, key: events.Key) -> None:
    """Give *key*, which came to its screen, to *widget*."""
    widget._forward_event(key)


async def act(box: Widget, event: events.Key) -> None:
    """Run at once the binding of this key in *box* itself, such as Backspace; other keys are left alone."""
    for binding in box._bindings.key_to_bindings.get(event.key, ()):  # Textual has no public name for them
        event.stop()
        event.prevent_default()
        await box.run_action(binding.action)
