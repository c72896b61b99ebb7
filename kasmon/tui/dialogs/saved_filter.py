"""The dialog that saves the filter of the list as a tab, renames a tab, or removes it."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from rich.cells import cell_len
from textual.widget import Widget

from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.session_list.filter_bar import NAME_CELLS
from kasmon.tui.session_list.layout import MOST_FILTERS, SavedFilter
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Sentences


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
        yield Sentences(self.look, id="filter-note")

    def on_mount(self) -> None:
        removal = " Without a name, its tab is removed." if self.existing else ""
        note = f"Filter: {clean_line(self.text_of_filter)}.{removal}"
        self.query_one("#filter-note", Sentences).say((note, Token.FAINT))
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
