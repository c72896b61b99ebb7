"""Full screen review of what a session changed: a tree of files, and the selected one's diff in one column or two."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.model.events import ReviewComment
from kasmon.model.permission import SessionId
from kasmon.model.review.comments import LoggedComment, place_in
from kasmon.model.review.file_changes import FileChange
from kasmon.model.review.file_tree import TreeRow, build_tree, file_order
from kasmon.model.review.hunks import ShownHunk, parse
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap, Keys
from kasmon.tui.review.diff_rows import NARROW, ShownComment
from kasmon.tui.review.diff_view import DiffView
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import StyledSpan, ThemeStyles, width_of
from kasmon.tui.transcript.find_bar import FindBar, FindChanged
from kasmon.tui.widgets.text_lines import PICKS, DrawnLine, TextLines, fitting_keys

LIST_COLUMNS: Final = 34
ROOMY: Final = 110
"""From this width on the file list is left of the diff; below it, above."""
SHOWN_ABOVE: Final = 5
"""Number of rows of the list when it is above the diff."""


class ShownReview(msgspec.Struct, frozen=True, kw_only=True):
    """What is reviewed: the changes of all of a session's branch, or of one turn."""

    session: SessionId
    name: str
    """The session's, cleaned."""
    files: tuple[FileChange, ...] = ()
    turn: int | None = None
    """The turn's number; None for the branch."""
    turns: tuple[int, ...] = ()
    """The stored turns, where known."""
    comments: tuple[LoggedComment, ...] = ()
    """All of the session's."""

    @property
    def title(self) -> str:
        if self.turn is None:
            return "branch"
        return f"turn {self.turn} of {self.turns[-1]}" if self.turns else f"turn {self.turn}"


class ReviewRequests(Protocol):
    """What the screen requests; the screen shows the outcome when it gets another review."""

    def show_branch(self, screen: "ReviewScreen", /) -> None: ...
    def show_last_turn(self, screen: "ReviewScreen", /) -> None: ...
    def step_turn(self, screen: "ReviewScreen", by: int, /) -> None:
        """Show the turn before (-1) the shown one, or after it (1)."""

    def edit_file(self, screen: "ReviewScreen", name: str, line: int, /) -> None:
        """Open the file in the user's editor at this line."""

    def write_comment(self, screen: "ReviewScreen", comment: ReviewComment, /) -> None:
        """Have the user write the text of *comment*, or edit it."""

    def delete_comment(self, screen: "ReviewScreen", comment: LoggedComment, /) -> None: ...
    def mark_comment(self, screen: "ReviewScreen", comment: LoggedComment, /) -> None:
        """Mark *comment* as resolved; a resolved one, reopen."""

    def list_comments(self, screen: "ReviewScreen", /) -> None: ...
    def send_comments(self, screen: "ReviewScreen", /) -> None: ...
    def revert_hunk(self, screen: "ReviewScreen", hunk: ShownHunk, /) -> None: ...
    def stage_hunk(self, screen: "ReviewScreen", hunk: ShownHunk, /) -> None: ...
    def undo_hunk(self, screen: "ReviewScreen", /) -> None: ...
    def report(self, text: str, /) -> None: ...


class ReviewScreen(Overlay):
    """The review of one session; *requests* does what needs more than the screen."""

    contexts = (KeyContext.REVIEW, KeyContext.FIND)
    AUTO_FOCUS = ""  # else Textual focuses the hidden input of a search once a dialog above is closed
    DEFAULT_CSS = """
    ReviewScreen { align: left top; background: $background; }
    ReviewScreen #diff-middle { layout: vertical; height: 1fr; width: 1fr; }
    ReviewScreen.-beside #diff-middle { layout: horizontal; }
    ReviewScreen.-beside TextLines#diff-files { width: 34; height: 1fr; }
    """

    def __init__(self, look: ThemeStyles, keys: KeyMap, review: ShownReview, requests: ReviewRequests) -> None:
        super().__init__()
        self.look, self.keys, self.review, self.requests = look, keys, review, requests
        self.at = 0
        """The index of the shown file."""
        self._tree: Sequence[TreeRow] = ()
        self._order: Sequence[int] = ()
        self._matches: list[tuple[int, int]] = []
        """The index of the file in the tree's order, and that of the line, of each line with the searched words."""
        self._match: tuple[int, int] | None = None
        self.head = TextLines(look, "surface")
        self.list = TextLines(look, "surface", id="diff-files")
        self.view = DiffView(look, keys.shown("review_fold", look.utf8))
        self.find_bar = FindBar(look, keys)
        self.foot = TextLines(look, "surface")
        view = self.view
        self.handlers = {
            Keys.REVIEW_DOWN: lambda: view.move(1),
            Keys.REVIEW_UP: lambda: view.move(-1),
            Keys.REVIEW_PAGE_DOWN: lambda: view.move_pages(1),
            Keys.REVIEW_PAGE_UP: lambda: view.move_pages(-1),
            Keys.REVIEW_TOP: lambda: view.go_to(0),
            Keys.REVIEW_END: lambda: view.go_to(len(view.rows.entries)),
            Keys.REVIEW_FILE_ON: lambda: self._step_file(1),
            Keys.REVIEW_FILE_BACK: lambda: self._step_file(-1),
            Keys.REVIEW_CHANGE_ON: lambda: self._step_change(1),
            Keys.REVIEW_CHANGE_BACK: lambda: self._step_change(-1),
            Keys.REVIEW_FOLD: view.toggle_fold,
            Keys.REVIEW_FOLD_ALL: view.fold_all,
            Keys.REVIEW_COLUMNS: self._toggle_columns,
            Keys.REVIEW_FIND: self._begin_find,
            Keys.REVIEW_FIND_ON: lambda: self._step_match(1),
            Keys.REVIEW_FIND_BACK: lambda: self._step_match(-1),
            Keys.FIND_KEEP: self._accept_find,
            Keys.FIND_DROP: self._drop_find,
            Keys.REVIEW_SELECT: view.toggle_selection,
            Keys.REVIEW_COMMENT: self._comment,
            Keys.REVIEW_COMMENT_DELETE: lambda: self._on_comment(self.requests.delete_comment),
            Keys.REVIEW_COMMENT_RESOLVE: lambda: self._on_comment(self.requests.mark_comment),
            Keys.REVIEW_COMMENTS: lambda: self.requests.list_comments(self),
            Keys.REVIEW_SEND: lambda: self.requests.send_comments(self),
            Keys.REVIEW_REVERT: lambda: self._on_hunk(self.requests.revert_hunk),
            Keys.REVIEW_STAGE: lambda: self._on_hunk(self.requests.stage_hunk),
            Keys.REVIEW_UNDO: lambda: self.requests.undo_hunk(self),
            Keys.REVIEW_BRANCH: lambda: self.requests.show_branch(self),
            Keys.REVIEW_LAST_TURN: lambda: self.requests.show_last_turn(self),
            Keys.REVIEW_TURN_BACK: lambda: self.requests.step_turn(self, -1),
            Keys.REVIEW_TURN_ON: lambda: self.requests.step_turn(self, 1),
            Keys.REVIEW_EDIT: self._edit,
            Keys.REVIEW_LEAVE: self._leave,
        }

    @property
    def session_here(self) -> SessionId:
        return self.review.session

    @property
    def change(self) -> FileChange | None:
        """The shown file; None if there is none."""
        return self.review.files[self.at] if self.at < len(self.review.files) else None

    def compose(self) -> ComposeResult:
        yield self.head
        with Container(id="diff-middle"):
            yield self.list
            yield self.view
        yield self.find_bar
        yield self.foot

    def on_mount(self) -> None:
        self.set_class(self.app.size.width >= ROOMY, "-beside")  # before the first layout: one is enough
        self.show(self.review)

    def on_resize(self) -> None:
        self.set_class(self._is_beside, "-beside")
        self._draw()

    def show(self, review: ShownReview) -> None:
        """Show *review*, at the same file and line as before if it has them."""
        name, line = (self.change.name if self.change else ""), self._line_number()
        comment = self.view.entry.comment if self.view.entry is not None else ""
        was_shown = self._order != ()
        self.review = review
        self._tree = build_tree(review.files)
        self._order = file_order(self._tree)
        same = next((at for at, file in enumerate(review.files) if file.name == name), None) if was_shown else None
        self.at = same if same is not None else next(iter(self._order), 0)
        self._show_file(self._line_of(line) if same is not None else None)
        self.view.go_to_comment(comment)
        if self.find_bar.is_open:
            self._search(self.find_bar.words.words, moves=False)

    def takes(self, key: events.Key) -> bool:
        finds = self.focused is not None and self.focused is self.find_bar.box
        place = KeyContext.FIND if finds else KeyContext.REVIEW
        row = self.keys.action_of(key.aliases, place)
        return row is not None and self.do(row)

    def pick(self, at: int, line: int | None = None) -> None:
        """Show file number *at*, counted from 0; do nothing if there is none. *line*: as in `DiffView.show`."""
        if 0 <= at < len(self.review.files):
            self.at = at
            self._show_file(line)

    # Moving.

    def _step_file(self, by: int) -> None:
        at = self._order.index(self.at) + by if self._order else -1
        if 0 <= at < len(self._order):
            self.pick(self._order[at])

    def _step_change(self, by: int) -> None:
        """Go to the next change, in the next file if this one has no more; likewise back."""
        if not self._order or self.view.go_to_change(by):
            return
        at = self._order.index(self.at) + by
        if not 0 <= at < len(self._order):
            self.requests.report("No next change." if by > 0 else "No previous change.")
            return
        self.pick(self._order[at])
        if by < 0:
            self.view.go_to(len(self.view.rows.entries))
            self.view.go_to_change(-1)

    def _show_file(self, line: int | None) -> None:
        if (change := self.change) is not None:
            self.view.show(change, self._comments(), line)
        else:
            subject = "The branch" if self.review.turn is None else f"Turn {self.review.turn}"
            self.view.show(FileChange("", (f"{subject} changed no files.",)), {})
        self._draw()

    def _comments(self) -> Mapping[int, Sequence[ShownComment]]:
        """The comments on the shown file, by the index of the line that each is below."""
        shown: dict[int, list[ShownComment]] = {}
        mine = [each for each in self.review.comments if self.change and each.comment.file == self.change.name]
        if mine and self.change is not None:
            file = parse(self.change.lines)
            for each in mine:
                if (at := place_in(each, file)) is not None:
                    comment = ShownComment(id=each.comment.id, text=each.comment.text, note=each.state)
                    shown.setdefault(at, []).append(comment)
        return shown

    def _line_number(self) -> tuple[int, int]:
        """Return the numbers of the line under the cursor in the old file and in the new one."""
        lines = self.view.file.lines
        line = lines[self.view.line] if self.view.line < len(lines) else None
        return (line.old, line.new) if line is not None else (0, 0)

    def _line_of(self, number: tuple[int, int]) -> int | None:
        """Return the index of the first line of the shown file that is not above the one with these numbers."""
        if self.change is None or not any(number):
            return None
        lines = parse(self.change.lines).lines
        old, new = number
        later = (at for at, line in enumerate(lines) if (new and line.new >= new) or (not new and line.old >= old))
        return next(later, None)

    # Searching: in all files, downwards.

    def _begin_find(self) -> None:
        self._match = (self._order.index(self.at), self.view.line) if self._order else None
        self.find_bar.begin()

    def on_find_changed(self, message: FindChanged) -> None:
        message.stop()
        self.find_bar.search_if_current(message.words, self._search)

    def _search(self, query: str, *, moves: bool = True) -> None:
        self.find_bar.words.words = query
        folded = query.casefold()
        self._matches = [
            (place, at)
            for place, file in enumerate(self._order)
            for at, text in enumerate(self.review.files[file].lines)
            if folded and folded in text.casefold()
        ]
        self.view.search(query)
        position = self._match or (0, 0)
        found = next((match for match in self._matches if match >= position), next(iter(self._matches), None))
        if moves and found is not None:
            self._show_match(found)
        self.find_bar.show_count(len(self._matches), done=True, at_match=found is not None)

    def _step_match(self, by: int) -> None:
        if not self.find_bar.is_open or not self._matches:
            self._begin_find()
            return
        position = (self._order.index(self.at), self.view.line)
        later = [match for match in self._matches if (match > position if by > 0 else match < position)]
        if later:
            self._show_match(later[0] if by > 0 else later[-1])
        self.find_bar.show_count(len(self._matches), done=True, at_match=bool(later))

    def _show_match(self, match: tuple[int, int]) -> None:
        place, line = match
        if self._order[place] != self.at:
            self.pick(self._order[place], line)
        self.view.go_to_line(line)

    def _accept_find(self) -> None:
        self.find_bar.accept(self._search)
        self.set_focus(None)

    def _drop_find(self) -> None:
        self.find_bar.drop()
        self._matches = []
        self.view.search("")
        self.set_focus(None)
        if self._match is not None:
            place, line = self._match
            if self._order[place] != self.at:
                self.pick(self._order[place], line)
            self.view.go_to_line(line)

    # Comments.

    def _comment(self) -> None:
        if (target := self._comment_here()) is not None:
            self.requests.write_comment(self, target.comment)
            return
        file, selected = self.view.file, self.view.selected_lines()
        lines = [(at, file.lines[at].new) for at in selected if file.lines[at].new]
        side: Literal["new", "old"] = "new" if lines else "old"
        lines = lines or [(at, file.lines[at].old) for at in selected if file.lines[at].old]
        if not lines or self.change is None:
            self.requests.report("Go to a line of a file first.")
            return
        together = [(at, number) for step, (at, number) in enumerate(lines) if number == lines[0][1] + step]
        header = file.lines[file.hunks[file.hunk_at(lines[0][0])].start]
        comment = ReviewComment(
            id="",
            file=self.change.name,
            line=lines[0][1],
            last_line=together[-1][1],
            side=side,
            lines=tuple(file.lines[at].text[1:] for at, _ in together),
            hunk=header.text if header.token is Token.HUNK else "",
            text="",
        )
        self.view.drop_selection()
        self.requests.write_comment(self, comment)

    def go_to_comment(self, logged: LoggedComment) -> None:
        """Show the file of this comment, with the cursor on it."""
        name = logged.comment.file
        at = next((at for at, file in enumerate(self.review.files) if file.name == name), None)
        if at is not None:
            self.pick(at)
        if at is None or not self.view.go_to_comment(logged.comment.id):
            hint = "" if self.review.turn is None else f" {self.keys.shown('review_branch')} shows the branch."
            self.requests.report(f"{clean_line(logged.place)} is not in the shown changes.{hint}")

    def _on_comment(self, request: Callable[["ReviewScreen", LoggedComment], None]) -> None:
        if (selected := self._comment_here()) is not None:
            request(self, selected)
        else:
            self.requests.report("Go to a comment first.")

    def _comment_here(self) -> LoggedComment | None:
        name = self.view.entry.comment if self.view.entry is not None else ""
        return next((each for each in self.review.comments if name and each.comment.id == name), None)

    # Actions.

    def _on_hunk(self, request: Callable[["ReviewScreen", ShownHunk], None]) -> None:
        change, file = self.change, self.view.file
        if change is None or not change.has_hunks:
            self.requests.report("There is no hunk here.")
            return
        hunk = file.hunks[file.hunk_at(self.view.line)]
        lines = change.lines[hunk.start : hunk.end]
        request(self, ShownHunk(name=change.name, head=change.head, lines=lines, turn=self.review.turn))

    def _toggle_columns(self) -> None:
        self.view.toggle_columns()
        self._draw()

    def _edit(self) -> None:
        if self.change is None:
            return
        if self.change.kind == "deleted":
            self.requests.report(f"{clean_line(self.change.name)} is deleted.")
            return
        lines = self.view.file.lines
        below = (line.new for line in lines[self.view.line :] if line.new)
        self.requests.edit_file(self, self.change.name, next(below, 1))

    def _leave(self) -> None:
        if self.view.drop_selection():
            self._draw()
        elif self.find_bar.is_open:
            self._match = None
            self._drop_find()
        else:
            self.dismiss()

    # Drawing.

    @property
    def _is_beside(self) -> bool:
        return self.size.width >= ROOMY

    def on_diff_view_moved(self, message: DiffView.Moved) -> None:
        message.stop()
        self.foot.say(self._keys())

    def _draw(self) -> None:
        files = self.review.files
        added, removed = sum(file.added for file in files), sum(file.removed for file in files)
        count = "1 file" if len(files) == 1 else f"{len(files)} files"
        title: tuple[StyledSpan, ...] = (
            (f" {self.review.name}", "text.bold"),
            (f"  {count}", "soft"),
            *_signs(added, removed),
            (f"  {self.review.title}", "accent"),
        )
        waiting = sum(each.state == "open" for each in self.review.comments)
        if waiting:
            title = (*title, (f"  {waiting} open {'comment' if waiting == 1 else 'comments'}", "warn"))
        self.head.say(DrawnLine(title, self._file_facts(self.size.width - width_of(title) - 2)))
        self.list.say(*self._file_lines())
        self.foot.say(self._keys())

    def _file_facts(self, space: int) -> tuple[StyledSpan, ...]:
        """What the list does not show of the selected file: a rename, a mode; cut to *space* cells."""
        if (change := self.change) is None:
            return ()
        facts = [f"renamed from {clean_line(change.old_name)}"] if change.old_name else []
        facts += [f"mode {' → '.join(change.modes)}"] if len(change.modes) == 2 else []
        text = self.look.cut_left(" · ".join(facts), space)
        return ((f"{text} ", "soft"),) if text else ()

    def _file_lines(self) -> list[DrawnLine]:
        height = self.size.height
        height_left = max(1, height - 2 if self._is_beside else min(SHOWN_ABOVE, height // 4, len(self._tree)))
        index = next((number for number, row in enumerate(self._tree) if row.file == self.at), 0)
        first = max(0, min(index - height_left // 2, len(self._tree) - height_left))
        width = LIST_COLUMNS if self._is_beside else self.size.width
        return [self._file_line(row, width) for row in self._tree[first : first + height_left]]

    def _file_line(self, row: TreeRow, width: int) -> DrawnLine:
        is_here = row.file is not None and row.file == self.at
        mark: StyledSpan = (f"{self.look.mark('cursor') if is_here else ' '} {'  ' * min(row.depth, 6)}", "accent")
        signs = _signs(row.added, row.removed)
        label = clean_line(row.label)
        if row.file is None:
            name = self.look.cut_left(label, width - len(mark[0]) - sum(len(text) for text, _ in signs) - 2)
            return DrawnLine((mark, (name, "soft")), (*((text, "faint") for text, _ in signs), (" ", "text")))
        change = self.review.files[row.file]
        kind_word = change.kind or (
            "renamed" if change.old_name else "mode" if change.modes and not change.has_hunks else ""
        )
        kind: tuple[StyledSpan, ...] = ((f" {kind_word}", "faint"),) if kind_word else ()
        space = width - len(mark[0]) - width_of([*kind, *signs]) - 2
        left = (mark, (self.look.cut_left(label, space), "text.bold" if is_here else "text"), *kind)
        return DrawnLine(left, (*signs, (" ", "text")), f"{PICKS}{row.file}", chosen=is_here)

    def _keys(self) -> DrawnLine:
        labels = [
            ("review_file_back", "prev file"),
            ("review_file_on", "next file"),
            ("review_change_on", "next change"),
            ("review_last_turn", "last turn") if self.review.turn is None else ("review_branch", "branch"),
            ("review_find", "search"),
            ("review_comment", "comment"),
        ]
        if any(each.state == "open" for each in self.review.comments):
            labels.append(("review_send", "send comments"))
        if self.size.width >= NARROW:
            labels.append(("review_columns", "one column" if self.view.wants_two else "two columns"))
        labels.append(("review_leave", "clear" if self.view.selects or self.find_bar.is_open else "back"))
        keys = ((self.keys.shown(action, self.look.utf8), word, action) for action, word in labels)
        number = self._order.index(self.at) + 1 if self.at in self._order else 0
        return fitting_keys(keys, self.size.width, f"{number} of {len(self._order)} ", (" ", "text"))


def _signs(added: int, removed: int) -> tuple[StyledSpan, ...]:
    signs: list[StyledSpan] = [(f"  +{added}", "good")] if added else []
    return (*signs, *([(f"  -{removed}", "bad")] if removed else []))
