"""Edits an earlier prompt of a session, or writes one after all of them, and forks the session there."""

from collections.abc import Iterable, Sequence
from typing import Final

from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

LISTED: Final = 8
NOT_REWOUND: Final = "Files are not rewound: the new session works in them as they are now."


AFTER_ALL: Final = "a new prompt, after all of these"
"""The last row: the whole conversation is continued."""


class EarlierPromptDialog(Dialog):
    """Lists *prompts*, the last one last; the chosen one is edited, and a new session continues from there.

    The row after them continues the whole conversation.
    """

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, session: Session, prompts: Sequence[str], copies: tuple[bool, bool]
    ) -> None:
        """*copies*: whether the agent copies its conversation up to a prompt, and all of it; otherwise the new session
        gets the transcript."""
        super().__init__(look, keys)
        self.session, self.prompts, self.copies = session, tuple(prompts), copies
        self.title_text = f"Edit an earlier prompt: {clean_line(session.label)}"
        self.list = RowList[int](
            look, self._draw, range(len(prompts) + 1), len(prompts) - 1, most_rows=LISTED, id="earlier-prompts"
        )
        self.box = TextBox(keys, "", id="earlier-prompt")
        self.box.display = False

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield self.box
        yield Sentences(self.look, id="fork-says")

    def on_mount(self) -> None:
        self._explain()
        self.offer(("up down", "choose"), ("enter", "edit"), ("esc", "cancel"))
        self.begin(self.list)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self._explain()

    def _explain(self) -> None:
        is_whole = self.list.index == len(self.prompts)
        how = "a copy of the conversation" if self.copies[is_whole] else "the transcript, as text in its first prompt"
        until = "" if is_whole else " up to this prompt" if self.copies[is_whole] else ", up to this prompt"
        text = f"A new session gets {how}{until}; this one stays as it is."
        self.query_one("#fork-says", Sentences).say((text, Token.TEXT), (NOT_REWOUND, Token.WARNING))

    def submit(self) -> None:
        if self.box.display:
            self._fork()
        else:
            self._edit()

    def _edit(self) -> None:
        self.list.display, self.box.display = False, True
        self.box.text = self.prompts[self.list.index] if self.list.index < len(self.prompts) else ""
        self.box.move_cursor(self.box.document.end)
        self.set_focus(self.box)
        self.offer(("enter", "start the new session"), ("esc", "cancel"))

    def _fork(self) -> None:
        text, index = self.box.text, self.list.index
        if not text.strip():
            return
        prompt, session = self.prompts[index] if index < len(self.prompts) else "", self.session.id
        later = self.prompts[index + 1 :].count(prompt)
        self.run_operation(lambda operations: operations.fork_session(session, prompt, later, text))

    def _draw(self, index: int, is_selected: bool, width: int) -> Strip:
        mark = self.look.mark("cursor") if is_selected else " "
        is_whole = index == len(self.prompts)
        text = AFTER_ALL if is_whole else clean_line(" ".join(self.prompts[index].split()))
        spans = ((f" {mark} ", "accent"), (text, "text.bold" if is_selected else "faint" if is_whole else "soft"))
        return self.look.between(spans, (), width, "selected" if is_selected else "raised")
