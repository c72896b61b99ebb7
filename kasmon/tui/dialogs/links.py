"""The choice between the links of a paragraph or a message."""

from collections.abc import Callable, Iterable, Sequence

from textual.widget import Widget

from kasmon.sanitize import visible
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.dialogs.fields import ChoiceField, DialogField
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import ThemeStyles


class LinkDialog(Dialog):
    """Asks which of several links is meant; it opens none itself."""

    title_text = "Links"

    def __init__(self, look: ThemeStyles, keys: KeyMap, addresses: Sequence[str], then: Callable[[str], None]) -> None:
        """Call *then* with the chosen one of *addresses*."""
        super().__init__(look, keys)
        self.addresses, self.then = addresses, then
        self.choice = ChoiceField(look, tuple(look.cut(visible(each), 60) for each in addresses), id="link")

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Link", self.choice)

    def on_mount(self) -> None:
        self.offer(("left right", "choose"), ("enter", "show"), ("esc", "cancel"))
        self.begin(self.choice)

    def submit(self) -> None:
        self.dismiss()
        self.then(self.addresses[self.choice.chosen])
