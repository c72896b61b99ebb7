"""A box to write a prompt in: many lines, one key sends, another begins a line. Heavy; imported when it is needed."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from kasmon.model.permission import SessionId
from kasmon.tui.keys import Keys, Where
from kasmon.tui.messages import ActionWanted, PromptEntered


class TextBox(TextArea):
    """Many lines; Enter is `Submitted`, the keys for a new line make one."""

    class Submitted(Message):
        def __init__(self, box: "TextBox") -> None:
            super().__init__()
            self.box = box

        @property
        def control(self) -> "TextBox":
            return self.box

    def __init__(self, keys: Keys, placeholder: str = "", text: str = "", *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        quiet = Content(placeholder)  # a plain string would be read as markup
        super().__init__(text, soft_wrap=True, show_line_numbers=False, placeholder=quiet, id=id)
        self.keys = keys
        self.cursor_blink = False
        self.highlight_cursor_line = False
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        row = self.keys.action(event.key, Where.PROMPT)
        if row is None:
            await super()._on_key(event)
        elif self.means(row.id):
            event.stop()
            event.prevent_default()

    def means(self, action: str) -> bool:
        """Do what a key of the table means here; False leaves the key to whoever is next."""
        if action == "submit":
            self.post_message(self.Submitted(self))
        elif action == "newline":
            self.insert("\n")
        else:
            return False
        return True


class PromptBox(TextBox):
    """Writes to one session."""

    def __init__(self, session: SessionId, keys: Keys, placeholder: str, text: str = "") -> None:
        super().__init__(keys, placeholder, text, id="prompt")
        self.session = session

    def means(self, action: str) -> bool:
        if action == "submit":
            if self.text.strip():
                self.post_message(PromptEntered(self.session, self.text))
                self.clear()
            return True
        if super().means(action):
            return True
        self.post_message(ActionWanted(action))
        return True
