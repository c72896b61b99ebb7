"""Full screen view of what a session changed: its files, and the selected one's diff, in one column or in two."""

from collections.abc import Sequence
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from kasmon.model.permission import SessionId
from kasmon.model.transcript.file_changes import NARROW, FileChange, beside, unified
from kasmon.model.transcript.text import TextLine
from kasmon.sanitize import clean_line
from kasmon.tui.action import KeyContext
from kasmon.tui.keymap import KeyMap
from kasmon.tui.textual_ext.modal import Overlay
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.reader import Reader
from kasmon.tui.widgets.text_lines import DrawnLine, TextLines, fitting_keys

LIST_COLUMNS: Final = 34
ROOMY: Final = 110
"""From this width on the file list is left of the diff; below it, above."""
SHOWN_ABOVE: Final = 5
"""Number of files listed when the list is above the diff."""
PICK: Final = "diff_pick"


class DiffScreen(Overlay):
    """The *files* that *session*, called *name*, changed."""

    places = (KeyContext.READING,)
    DEFAULT_CSS = """
    DiffScreen { align: left top; background: $background; }
    DiffScreen #diff-middle { layout: vertical; height: 1fr; width: 1fr; }
    DiffScreen.-beside #diff-middle { layout: horizontal; }
    DiffScreen.-beside TextLines#diff-files { width: 34; height: 1fr; }
    DiffScreen Reader { height: 1fr; max-height: 100%; width: 1fr; }
    """

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, session: SessionId, name: str, files: Sequence[FileChange]
    ) -> None:
        super().__init__()
        self.look, self.keys, self.session_name, self.files = look, keys, name, files
        self._session = session
        self.at = 0
        self.wants_two = False
        """Whether old and new are shown side by side, where there is space."""
        self.head = TextLines(look, "surface")
        self.list = TextLines(look, "surface", id="diff-files")
        self.reader = Reader(look, self._rows, ground="background", margin=1)
        self.foot = TextLines(look, "surface")
        self.handlers = {
            "read_line_down": lambda: self.reader.scroll_rows(1),
            "read_line_up": lambda: self.reader.scroll_rows(-1),
            "read_page_down": lambda: self.reader.scroll_pages(1),
            "read_page_up": lambda: self.reader.scroll_pages(-1),
            "read_to_top": lambda: self.reader.scroll_to(y=0, animate=False, immediate=True),
            "read_to_end": lambda: self.reader.scroll_end(animate=False, immediate=True),
            "turn_back": lambda: self.pick(self.at - 1),
            "turn_on": lambda: self.pick(self.at + 1),
            "toggle": self._toggle,
            "stop_reading": self.dismiss,
        }

    @property
    def session_here(self) -> SessionId:
        return self._session

    def compose(self) -> ComposeResult:
        yield self.head
        with Container(id="diff-middle"):
            yield self.list
            yield self.reader
        yield self.foot

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self.set_class(self._is_beside, "-beside")
        self._draw()

    def do(self, action: str) -> bool:
        """Run the action with this id; return whether this screen has it."""
        if action.startswith(PICK):
            self.pick(int(action.removeprefix(PICK)))
            return True
        return super().do(action)

    def takes(self, key: events.Key) -> bool:
        row = next((row for name in key.aliases if (row := self.keys.action(name, KeyContext.READING))), None)
        return row is not None and self.do(row.id)

    def pick(self, at: int) -> None:
        """Show file number *at*, counted from 0; do nothing if there is none."""
        if 0 <= at < len(self.files):
            self.at = at
            self.reader.read(self._rows)
            self._draw()

    @property
    def _is_beside(self) -> bool:
        return self.size.width >= ROOMY

    def _toggle(self) -> None:
        self.wants_two = not self.wants_two
        self.reader.read(self._rows)
        self._draw()

    def _rows(self, width: int) -> Sequence[TextLine]:
        change = self.files[self.at]
        return beside(change, width) if self.wants_two and width >= NARROW else unified(change, width)

    # Drawing.

    def _draw(self) -> None:
        added, removed = sum(file.added for file in self.files), sum(file.removed for file in self.files)
        count = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        title: tuple[Span, ...] = ((f" {self.session_name}", "text.bold"), (f"  {count}", "soft"))
        self.head.say(DrawnLine((*title, *_signs(added, removed))))
        self.list.say(*self._file_lines())
        self.foot.say(self._keys())

    def _file_lines(self) -> list[DrawnLine]:
        room = max(1, self.size.height - 2) if self._is_beside else min(SHOWN_ABOVE, len(self.files))
        first = max(0, min(self.at - room // 2, len(self.files) - room))
        width = LIST_COLUMNS if self._is_beside else self.size.width
        lines = []
        for number in range(first, min(first + room, len(self.files))):
            file, is_here = self.files[number], number == self.at
            mark: Span = (f"{self.look.mark('cursor') if is_here else ' '} ", "accent")
            signs = _signs(file.added, file.removed)
            name = self.look.cut_left(
                clean_line(file.name), width - 3 - sum(len(text) for text, _ in signs) - len(file.kind) - 1
            )
            kind: tuple[Span, ...] = ((f" {file.kind}", "faint"),) if file.kind else ()
            left = (mark, (name, "text.bold" if is_here else "text"), *kind)
            lines.append(DrawnLine(left, (*signs, (" ", "text")), f"{PICK}{number}", chosen=is_here))
        return lines

    def _keys(self) -> DrawnLine:
        labels = [("turn_back", "prev file"), ("turn_on", "next file")]
        if self.size.width >= NARROW:
            labels.append(("toggle", "one column" if self.wants_two else "two columns"))
        labels.append(("stop_reading", "back"))
        keys = ((self.keys.shown(action, self.look.utf8), word, action) for action, word in labels)
        place = f"{self.at + 1} of {len(self.files)} "
        return fitting_keys(keys, self.size.width, place, (" ", "text"))


def _signs(added: int, removed: int) -> tuple[Span, ...]:
    signs: list[Span] = [(f"  +{added}", "good")] if added else []
    return (*signs, *([(f"  -{removed}", "bad")] if removed else []))
