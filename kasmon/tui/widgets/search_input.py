"""A search input: keys with an action in the key table are posted, others edit the text."""

from collections.abc import Callable

from textual import events
from textual.message import Message
from textual.widgets import Input

from kasmon.tui.action import Action, KeyContext
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.inputs import OrderedKeys


class SearchInput(OrderedKeys, Input):
    """One line; *meant* builds the message of an action in the context *where*, *changed* that of new text."""

    def __init__(
        self,
        keys: KeyMap,
        where: KeyContext,
        meant: Callable[[Action], Message],
        changed: Callable[[str], Message],
        text: str = "",
        placeholder: str = "words",
    ) -> None:
        self._table, self._where, self._meant, self._changed = keys, where, meant, changed
        super().__init__(text, placeholder=placeholder, compact=True)
        self.cursor_blink = False

    def takes(self, event: events.Key) -> bool:
        if (row := self._table.action(event.key, self._where)) is not None:
            self.post_message(self._meant(row))
        return row is not None

    def watch_value(self, value: str) -> None:
        self.post_message(self._changed(value))
