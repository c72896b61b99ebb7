"""Opens the review of a session, and does what its screen requests."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.sanitize import clean_line
from kasmon.tui.actions.dialogs import confirm_operation, find_location, show_text
from kasmon.tui.error_text import what_failed
from kasmon.tui.gateway.protocol import Operation

if TYPE_CHECKING:
    from kasmon.model.events import ReviewComment
    from kasmon.model.review.comments import LoggedComment
    from kasmon.model.review.hunks import ShownHunk
    from kasmon.tui.gateway.operations import Operations
    from kasmon.tui.review.dialogs import CommentsDialog
    from kasmon.tui.review.screen import ReviewScreen, ShownReview
    from kasmon.tui.session_pane import PaneDashboard

LAST: int = 0
"""In place of a turn's number: the last turn."""
MOST_SHOWN: int = 40
"""A confirmation shows at most so many lines of a hunk."""


class ReviewController:
    """Implements `ReviewRequests` of the screen."""

    def __init__(self, app: "PaneDashboard") -> None:
        self.app = app
        self._listed: CommentsDialog | None = None
        """The list of comments that was opened last."""

    def open(self, session: Session, turn: int | None = None) -> None:
        """Show what *session*'s worktree changed, or *turn* changed; without a worktree, its last change."""
        self._run(self._open(session, turn))

    # Requests of the screen.

    def show_branch(self, screen: "ReviewScreen", /) -> None:
        self._run(self._show(screen, None))

    def show_last_turn(self, screen: "ReviewScreen", /) -> None:
        self._run(self._show(screen, LAST))

    def step_turn(self, screen: "ReviewScreen", by: int, /) -> None:
        turn, turns = screen.review.turn, screen.review.turns
        if turn is None:
            self._run(self._show(screen, LAST))
            return
        beyond = [each for each in turns if (each > turn if by > 0 else each < turn)]
        if turns and not beyond:
            self.report("No later turn." if by > 0 else "No earlier turn is stored.")
        elif turn + by > 0:
            target = (min(beyond) if by > 0 else max(beyond)) if beyond else turn + by
            self._run(self._show(screen, target))

    def edit_file(self, screen: "ReviewScreen", name: str, line: int, /) -> None:
        """Suspend the dashboard for the user's editor; then show the changed diff."""
        self._run(self._edit(screen, name, line))

    def write_comment(self, screen: "ReviewScreen", comment: "ReviewComment", /) -> None:
        from kasmon.tui.review.dialogs import CommentDialog

        app = self.app
        app.push_screen(CommentDialog(app.look, app.keys, screen.session_here, comment, lambda: self._reload(screen)))

    def delete_comment(self, screen: "ReviewScreen", comment: "LoggedComment", /) -> None:
        lines = (f"Delete the comment on {comment.place}?", comment.comment.text)
        session, name = screen.session_here, comment.comment.id
        self._confirm(screen, "Delete", lines, "delete", lambda operations: operations.remove_comment(session, name))

    def list_comments(self, screen: "ReviewScreen", /) -> None:
        if not screen.review.comments:
            self.report("No comments yet.")
            return
        from kasmon.tui.review.dialogs import CommentsDialog

        self._listed = CommentsDialog(self.app.look, self.app.keys, screen)
        self.app.push_screen(self._listed)

    def mark_comment(self, screen: "ReviewScreen", comment: "LoggedComment", /) -> None:
        session, name, is_resolved = screen.session_here, comment.comment.id, comment.state != "resolved"

        async def mark(operations: "Operations") -> None:
            await operations.mark_comment(session, name, is_resolved=is_resolved)
            self._reload(screen)

        self.app.run_operation(mark)

    def send_comments(self, screen: "ReviewScreen", /) -> None:
        waiting = [each for each in screen.review.comments if each.state == "open"]
        if not waiting:
            self.report("No open comments.")
            return
        count = "1 comment" if len(waiting) == 1 else f"{len(waiting)} comments"
        listed = (f"{each.place}: {each.comment.text}" for each in waiting)
        lines = (f"Send {count} to {screen.review.name} as one prompt?", *listed)
        session = screen.session_here
        self._confirm(screen, "Send comments", lines, "send", lambda operations: operations.send_comments(session))

    def revert_hunk(self, screen: "ReviewScreen", hunk: "ShownHunk", /) -> None:
        session, undo = screen.session_here, self.app.keys.shown("review_undo")
        lines = (f"Revert this hunk of {hunk.name} in the worktree?", *_describe_turn(hunk), "", f"{undo} undoes it.")
        self._confirm(screen, "Revert hunk", lines, "revert", lambda operations: operations.revert_hunk(session, hunk))

    def stage_hunk(self, screen: "ReviewScreen", hunk: "ShownHunk", /) -> None:
        session, undo = screen.session_here, self.app.keys.shown("review_undo")
        lines = (f"Stage this hunk of {hunk.name}?", *_describe_turn(hunk), "", f"{undo} unstages it.")
        self._confirm(screen, "Stage hunk", lines, "stage", lambda operations: operations.stage_hunk(session, hunk))

    def undo_hunk(self, screen: "ReviewScreen", /) -> None:
        async def undo(operations: "Operations") -> str:
            text = await operations.undo_hunk(screen.session_here)
            self._reload(screen)
            return text

        self.app.run_operation(undo)

    def report(self, text: str, /) -> None:
        self.app.say(text)

    # Loading.

    def _confirm(
        self, screen: "ReviewScreen", title: str, lines: tuple[str, ...], yes: str, operation: Operation
    ) -> None:
        """Run *operation* once the user confirms, then show the review again."""

        async def run(operations: "Operations") -> str | None:
            text = await operation(operations)
            self._reload(screen)
            return text

        confirm_operation(self.app, title, lines, yes, run)

    def _reload(self, screen: "ReviewScreen") -> None:
        self._run(self._show(screen, screen.review.turn))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self.app.run_worker(work, group="dialog", exclusive=True)

    async def _open(self, session: Session, turn: int | None) -> None:
        name, location = clean_line(session.label), find_location(self.app)
        why = f"No changes by {name} were recorded." if turn is None else f"Turn {turn} of {name} changed no files."
        review: ShownReview | None = None
        try:
            review = await self._load(session, turn)
        except KasmonError as error:
            why = what_failed(error)
        from kasmon.tui.review.screen import ReviewScreen

        if location != find_location(self.app):
            return
        if review is not None and review.files:
            self.app.push_screen(ReviewScreen(self.app.look, self.app.keys, review, self))
        elif turn is None and (last := self.app.session_pane.last_diff(session.id)):
            from kasmon.model.transcript.request_text import diff_rows

            show_text(self.app, f"Last change by {name}", lambda width: diff_rows(last, width))
        else:
            self.app.say(why)

    async def _load(self, session: Session, turn: int | None) -> "ShownReview | None":
        if self.app.gateway is None:
            return None
        gateway = self.app.gateway
        changes, comments = await asyncio.gather(gateway.changes_of(session.id, turn), gateway.comments(session.id))
        from kasmon.model.review.file_changes import split
        from kasmon.tui.review.screen import ShownReview

        files = await asyncio.to_thread(split, changes.diff)  # there may be thousands
        name = clean_line(session.label)
        return ShownReview(
            session=session.id,
            name=name,
            files=files,
            turn=changes.turn,
            turns=changes.turns,
            comments=tuple(comments),
        )

    async def _show(self, screen: "ReviewScreen", turn: int | None) -> None:
        """Show *turn* on *screen*; None for the branch, `LAST` for the last turn."""
        session = self.app.main_view.table.session(screen.session_here)
        if session is None:
            self.report(f"{screen.review.name} was removed.")
            return
        try:
            review = await self._load(session, turn)
        except KasmonError as error:
            self.app.say(what_failed(error), severity="warning")
            return
        if review is not None and screen in self.app.screen_stack:
            screen.show(review)
            if self._listed is not None and self._listed.is_open:
                self._listed.put(review.comments)

    async def _edit(self, screen: "ReviewScreen", name: str, line: int) -> None:
        from kasmon.tui.process.attach import run_in_terminal  # seldom needed

        assert self.app.gateway is not None
        try:
            argv = await self.app.gateway.editor_argv(screen.session_here, name, line)
            await run_in_terminal(self.app, argv)
        except KasmonError as error:
            self.app.say(what_failed(error), severity="error")
        await self._show(screen, screen.review.turn)


def _describe_turn(hunk: "ShownHunk") -> tuple[str, ...]:
    more = len(hunk.lines) - MOST_SHOWN
    return (*hunk.lines[:MOST_SHOWN], f"… {more:,} more lines") if more > 0 else hunk.lines
