"""The dialog for the columns of the list: which it shows, and in which order."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.transcript.text import Token
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.session_list.layout import COLUMNS
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

MOVES = {"K": -1, "shift+up": -1, "J": 1, "shift+down": 1}


class ColumnChoice(msgspec.Struct, frozen=True):
    """A column, and whether the list shows it."""

    key: str
    is_shown: bool


class ColumnsDialog(Dialog):
    """Space shows or hides a column, J and K move it, Enter applies; without a change the usual columns stay."""

    title_text = "Columns"

    def __init__(
        self, look: ThemeStyles, keys: KeyMap, columns: Sequence[str], apply: Callable[[tuple[str, ...]], None]
    ) -> None:
        """*columns* as in `ListLayout`; *apply* is called with the chosen ones."""
        super().__init__(look, keys)
        self.apply = apply
        known = [key for key in columns if key in COLUMNS]
        choices = [ColumnChoice(key, True) for key in known or COLUMNS]
        choices += [ColumnChoice(key, False) for key in COLUMNS if known and key not in known]
        self.list = RowList(look, self._draw, choices, most_rows=len(COLUMNS), id="columns")

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield Sentences(self.look, id="columns-note")

    def on_mount(self) -> None:
        note = "State and name come first. Columns without a value are left out, and those that do not fit."
        self.query_one("#columns-note", Sentences).say(("", Token.TEXT), (note, Token.FAINT))
        self.offer(
            ("space", "show or hide"), ("J K", "move"), ("backspace", "default"), ("enter", "apply"), ("esc", "cancel")
        )
        self.begin(self.list)

    def _draw(self, choice: ColumnChoice, here: bool, width: int) -> Strip:
        mark = "[x]" if choice.is_shown else "[ ]"
        role = ("text.bold" if here else "text") if choice.is_shown else "faint"
        spans: list[Span] = [
            (self.look.mark("cursor") if here else " ", "accent"),
            (f" {mark} ", role),
            (COLUMNS[choice.key], role),
        ]
        return self.look.strip(spans, width, "selected" if here else "raised")

    def submit(self) -> None:
        if shown := tuple(choice.key for choice in self.list.values if choice.is_shown):
            self.apply(() if shown == tuple(COLUMNS) else shown)
            self.dismiss()
        else:
            self.complain("No column is chosen.", "Show at least one.")

    def on_key(self, event: events.Key) -> None:
        values, at = list(self.list.values), self.list.index
        if event.key == "backspace":
            self.list.put([ColumnChoice(key, True) for key in COLUMNS])
        elif event.key == "space":
            values[at] = ColumnChoice(values[at].key, not values[at].is_shown)
            self.list.put(values)
        elif (step := MOVES.get(event.key)) is not None and 0 <= at + step < len(values):
            values[at], values[at + step] = values[at + step], values[at]
            self.list.put(values)
            self.list.go_to(at + step)
        else:
            return
        event.stop()
