"""The dialogs of the list: which columns it shows, in which order, and which filters are tabs."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from rich.cells import cell_len
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.session_list.filter_bar import NAME_CELLS
from kasmon.tui.session_list.layout import COLUMNS, MOST_FILTERS, SavedFilter
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
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
        note = "State and name come first. Columns without a value are left out, and those that do not fit."
        yield Sentences(self.look, ("", Token.TEXT), (note, Token.FAINT), id="columns-note")

    def on_mount(self) -> None:
        self.offer(
            ("space", "show or hide"), ("J K", "move"), ("backspace", "default"), ("enter", "apply"), ("esc", "cancel")
        )
        self.begin(self.list)

    def _draw(self, choice: ColumnChoice, is_selected: bool, width: int) -> Strip:
        mark = "[x]" if choice.is_shown else "[ ]"
        role = ("text.bold" if is_selected else "text") if choice.is_shown else "faint"
        spans: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (f" {mark} ", role),
            (COLUMNS[choice.key], role),
        ]
        return self.look.strip(spans, width, "selected" if is_selected else "raised")

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


class SavedFilterDialog(Dialog):
    """Asks for the name of a filter's tab. A tab that exists is renamed, or removed by an empty name."""

    title_text = "Save filter"

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        text: str,
        saved: Sequence[SavedFilter],
        apply: Callable[[tuple[SavedFilter, ...]], None],
    ) -> None:
        """*text* is the filter; *apply* is called with all saved filters."""
        super().__init__(look, keys)
        self.text_of_filter, self.saved, self.apply = text, tuple(saved), apply
        self.existing = next((each for each in saved if each.text == text), None)
        self.box = LineInput(self.existing.name if self.existing else "", id="filter-name")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Name", self.box)
        removal = " Without a name, its tab is removed." if self.existing else ""
        note = f"Filter: {clean_line(self.text_of_filter)}.{removal}"
        yield Sentences(self.look, (note, Token.FAINT), id="filter-note")

    def on_mount(self) -> None:
        self.offer(("enter", "save"), ("esc", "cancel"))
        self.begin(self.box)

    def submit(self) -> None:
        name = clean_line(self.box.value).strip()
        same_name = next((each for each in self.saved if each.name == name), None)
        if cell_len(name) > NAME_CELLS:
            self.complain(f"The name is {cell_len(name)} cells wide.", f"A tab's name may have up to {NAME_CELLS}.")
        elif name == "all" or (self.existing and same_name and same_name != self.existing):
            self.complain(f"There is another tab {name!r}.", "Choose another name.")
        elif self.existing is not None:
            renamed = [msgspec.structs.replace(self.existing, name=name)] if name else []
            at = self.saved.index(self.existing)
            self._close((*self.saved[:at], *renamed, *self.saved[at + 1 :]))
        elif not name:
            self.complain("The tab has no name.", "Type one.")
        elif same_name is not None:
            at = self.saved.index(same_name)
            self._close((*self.saved[:at], SavedFilter(name, self.text_of_filter), *self.saved[at + 1 :]))
        elif len(self.saved) >= MOST_FILTERS:
            self.complain(f"{MOST_FILTERS} filters are saved already.", "Remove one first.")
        else:
            self._close((*self.saved, SavedFilter(name, self.text_of_filter)))

    def _close(self, saved: tuple[SavedFilter, ...]) -> None:
        self.apply(saved)
        self.dismiss()
