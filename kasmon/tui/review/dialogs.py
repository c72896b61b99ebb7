"""The dialog of the review that writes a comment, or edits one."""

from collections.abc import Callable, Iterable

import msgspec
from textual.widget import Widget

from kasmon.model.events import ReviewComment
from kasmon.model.permission import SessionId
from kasmon.model.review.comments import LoggedComment, line_range
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox
from kasmon.tui.widgets.reader import Reader

MOST_QUOTED = 6
"""The dialog shows at most so many of the commented lines."""


class CommentDialog(Dialog):
    """Writes *comment*, whose text may be empty yet, of *session*; calls *done* once it is logged."""

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, session: SessionId, comment: ReviewComment, done: Callable[[], None]
    ) -> None:
        super().__init__(look, keys)
        self.session, self.comment, self._done = session, comment, done
        place = f"{clean_line(comment.file)}:{line_range(comment.line, comment.last_line)}"
        self.title_text = f"Comment on {place}"
        self.quoted = Reader(look, self._quoted, margin=1)

    def inside(self) -> Iterable[Widget]:
        yield self.quoted
        yield TextBox(self.keys, "Type a comment", self.comment.text, id="message")

    def on_mount(self) -> None:
        newline = self.keys.shown("newline", self.look.utf8)
        self.offer(("enter", "save"), (newline, "new line"), ("esc", "cancel"))
        self.begin(self.query_one("#message", TextBox))

    def on_text_box_submitted(self, event: TextBox.Submitted) -> None:
        event.stop()
        if text := event.box.text.strip():
            comment = msgspec.structs.replace(self.comment, text=text)
            self.run_operation(lambda operations: operations.write_comment(self.session, comment))

    def handle_success(self, text: str) -> bool:
        self._done()
        return super().handle_success(text)

    def _quoted(self, width: int) -> list[TextLine]:
        lines = self.comment.lines[:MOST_QUOTED]
        more = len(self.comment.lines) - len(lines)
        rows = [row for line in lines for row in wrap([(line, Token.OUTPUT)], width, words=False)[:1]]
        return [*rows, *([TextLine(((f"… {more} more lines", Token.FAINT),))] if more else [])]


def comment_rows(comments: Iterable[LoggedComment], width: int) -> list[TextLine]:
    """Return *comments* as rows of *width* cells: the place and state of each, then its text."""
    rows: list[TextLine] = []
    for each in comments:
        rows += wrap([(clean_line(each.place), Token.STRONG), (f"  {each.state}", Token.FAINT)], width)
        for line in each.comment.text.split("\n"):
            rows += wrap([(clean_line(line), Token.TEXT)], width, (("  ", Token.TEXT),), (("  ", Token.TEXT),))
    return rows
