"""The dialogs of the review: one writes or edits a comment, one lists all comments."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.events import ReviewComment
from kasmon.model.permission import SessionId
from kasmon.model.review.comments import LoggedComment, line_range
from kasmon.model.transcript.text import TextLine, Token, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.transcript.prompt_box import TextBox
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from kasmon.tui.review.screen import ReviewScreen

MOST_QUOTED: Final = 6
"""A dialog shows at most so many of the commented lines."""
MOST_LISTED: Final = 10
"""So many comments are visible at once."""
OF_COMMENTS: Final = {
    "review_comment": "edit",
    "review_comment_delete": "delete",
    "review_comment_resolve": "resolve",
    "review_send": "send",
}
"""The actions of the review that the list of comments has, with their words."""


class CommentDialog(Dialog):
    """Writes *comment*, whose text may be empty yet, of *session*; calls *done* once it is logged."""

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, session: SessionId, comment: ReviewComment, done: Callable[[], None]
    ) -> None:
        super().__init__(look, keys)
        self.session, self.comment, self._done = session, comment, done
        place = f"{clean_line(comment.file)}:{line_range(comment.line, comment.last_line)}"
        self.title_text = f"Comment on {place}"
        self.quoted = Reader(look, lambda width: _quote(comment, width))

        self.box = TextBox(keys, "Type a comment", comment.text, id="message")

    def inside(self) -> Iterable[Widget]:
        yield self.quoted
        yield self.box

    def on_mount(self) -> None:
        newline = self.keys.shown("newline", self.look.utf8)
        self.offer(("enter", "save"), (newline, "new line"), ("esc", "cancel"))
        self.begin(self.box)

    def submit(self) -> None:
        if text := self.box.text.strip():
            comment = msgspec.structs.replace(self.comment, text=text)
            self.run_operation(lambda operations: operations.write_comment(self.session, comment))

    def handle_success(self, text: str) -> bool:
        self._done()
        return super().handle_success(text)


class CommentsDialog(Dialog):
    """Lists the comments of the session in *review*. The keys of the review edit, delete, resolve and send them."""

    def __init__(self, look: ThemeStyles, keys: KeyMap, review: "ReviewScreen") -> None:
        super().__init__(look, keys)
        self.review = review
        self.title_text = f"Comments on {review.review.name}"
        self.list = RowList(look, self._draw, most_rows=MOST_LISTED, id="comments")
        self.details = Reader(look)
        requests = review.requests
        self.handlers = {
            Keys.REVIEW_COMMENT: lambda: self._on_chosen(lambda chosen: requests.write_comment(review, chosen.comment)),
            Keys.REVIEW_COMMENT_DELETE: lambda: self._on_chosen(partial(requests.delete_comment, review)),
            Keys.REVIEW_COMMENT_RESOLVE: lambda: self._on_chosen(partial(requests.mark_comment, review)),
            Keys.REVIEW_SEND: lambda: self._on_chosen(lambda _: requests.send_comments(review)),
        }

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield self.details

    def on_mount(self) -> None:
        self.put(self.review.review.comments)
        self.begin(self.list)

    def put(self, comments: Sequence[LoggedComment]) -> None:
        """Show *comments*; without any, close."""
        self.list.put(comments)
        if comments:
            self._show_chosen()
        else:
            self.dismiss()

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self._show_chosen()
        super().on_row_list_moved(message)

    def on_key(self, event: events.Key) -> None:
        row = self.keys.action_of(event.aliases, KeyContext.REVIEW)
        if self.list.chosen is not None and row is not None and self.do(row):
            event.stop()
            event.prevent_default()  # where the user's key is Enter, it does not submit too

    def _on_chosen(self, act: Callable[[LoggedComment], object]) -> None:
        if (chosen := self.list.chosen) is not None:
            act(chosen)

    def submit(self) -> None:
        if (chosen := self.list.chosen) is not None:
            self.dismiss()
            self.review.go_to_comment(chosen)

    def _show_chosen(self) -> None:
        if (chosen := self.list.chosen) is not None:
            self.details.read(lambda width: _detail_rows(chosen, width))
            labels = {**OF_COMMENTS, "review_comment_resolve": "reopen" if chosen.state == "resolved" else "resolve"}
            offers = [(self.keys.shown(action, self.look.utf8), label) for action, label in labels.items()]
            self.offer(("up down", "choose"), ("enter", "go there"), *offers, ("esc", "close"))

    def _draw(self, logged: LoggedComment, is_selected: bool, width: int) -> Strip:
        place = self.look.cut_left(clean_line(logged.place), width // 2)
        left: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (f" {place}", "text.bold" if is_selected else "text"),
            (f"  {logged.state}", "warn" if logged.state == "open" else "faint"),
            (f"  {clean_line(logged.comment.text)}", "soft"),
        ]
        return self.look.between(left, [], width, "selected" if is_selected else "raised")


def _detail_rows(logged: LoggedComment, width: int) -> list[TextLine]:
    text = [
        row
        for line in logged.comment.text.split("\n")
        for row in wrap([(clean_line(line), Token.TEXT)], width, (("  ", Token.TEXT),), (("  ", Token.TEXT),))
    ]
    return [TextLine(()), *_quote(logged.comment, width), *text]


def _quote(comment: ReviewComment, width: int) -> list[TextLine]:
    """Return the first commented lines, each cut to a row of *width* cells."""
    lines = comment.lines[:MOST_QUOTED]
    more = len(comment.lines) - len(lines)
    rows = [row for line in lines for row in wrap([(line, Token.OUTPUT)], width, words=False)[:1]]
    return [*rows, *([TextLine(((f"… {more} more lines", Token.FAINT),))] if more else [])]
