"""The dialog that lists the panes of the user's own tmux and adopts one of them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from textual import events
from textual.strip import Strip
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.pane_candidate import AdoptablePane
from kasmon.model.transcript.text import Token, cells
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations

ROWS: Final = 12
"""Number of panes visible at once."""
TARGET_CELLS: Final = 28
"""A longer name of a pane is cut."""
NOTICED: Final = "Your tmux gets one more client. Its sizes, names and options do not change."
NONE: Final = "Your own tmux has no other pane to adopt."


class AdoptDialog(Dialog):
    """Up and down choose a pane, Enter adopts it."""

    title_text = "Adopt a tmux pane"

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.list = RowList(look, self._draw, most_rows=ROWS, id="panes")
        self._target_cells = 0
        self.said = Sentences(look, id="adopting")
        self.said.say(("Loading panes…", Token.FAINT))

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield self.said

    def on_mount(self) -> None:
        self._offer_keys()
        self.begin(self.list)
        self.run_worker(self._load_panes())

    def _offer_keys(self) -> None:
        choosing = (("up down", "choose"), ("enter", "adopt")) if self.list.values else ()
        self.offer(*choosing, ("esc", "close"))

    async def _load_panes(self) -> None:
        gateway = self.dashboard.gateway
        try:
            panes = await gateway.foreign_panes() if gateway is not None else ()
        except KasmonError as error:
            self.said.say()
            self.complain(error.message, error.hint)
            return
        offered = [pane for pane in panes if not pane.adopted and not pane.is_dead]
        self._target_cells = min(TARGET_CELLS, max((cells(clean_line(pane.target)) for pane in offered), default=0))
        self.list.put(offered)
        self.said.say(("", Token.TEXT), (NOTICED if self.list.values else NONE, Token.FAINT))
        self._offer_keys()

    def _draw(self, pane: AdoptablePane, here: bool, width: int) -> Strip:
        target = clean_line(pane.target)
        left: list[Span] = [
            (self.look.mark("cursor") if here else " ", "accent"),
            (f" {self.look.fit(target, min(self._target_cells, width * 2 // 5))}", "text.bold" if here else "text"),
            (f"  {pane.agent or pane.command}", "accent" if pane.agent else "soft"),
            (f"  {pane.title}", "faint"),
        ]
        size: list[Span] = [(f"{pane.width}x{pane.height} ", "faint")]
        return self.look.between(left, size, width, "selected" if here else "raised")

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and (pane := self.list.chosen) is not None:
            event.stop()
            self._adopt(pane.pane, clean_line(pane.session))

    def _adopt(self, pane: str, name: str) -> None:
        async def adopt(operations: "Operations") -> None:
            await operations.adopt_pane(pane, name)
            self.dashboard.main_view.table.await_name(name)

        self.run_operation(adopt)
