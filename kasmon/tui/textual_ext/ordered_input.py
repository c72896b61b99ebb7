"""Typing in order: a box acts on each key before it takes the next.

Textual 8.2.8 sends a key that a box does not take for text on to the app, which then does what is bound to it. What was
typed meanwhile overtakes it: where `lats`, two Backspaces and `st` come at once, the Backspaces would take the `st`.
"""

from textual import events
from textual.widget import Widget


async def act(box: Widget, event: events.Key) -> None:
    """Do at once what this key is bound to in *box* itself, such as Backspace; any other is left as it is."""
    for binding in box._bindings.key_to_bindings.get(event.key, ()):  # Textual has no public name for them
        event.stop()
        event.prevent_default()
        await box.run_action(binding.action)
