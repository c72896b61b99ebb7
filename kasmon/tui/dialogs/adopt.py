"""The dialog that lists the panes of the user's own tmux and adopts one of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from textual import events
from textual.geometry import Size
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

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations

ROWS: Final = 12
"""Number of panes visible at once."""
TARGET_CELLS: Final = 28
"""A longer name of a pane is cut."""
NOTICED: Final = "Your tmux gets one more client. Its sizes, names and options do not change."
NONE: Final = "Your own tmux has no other pane to adopt."


class PaneList(Widget, can_focus=True):
    """Panes, one a line; up and down move the cursor."""

    DEFAULT_CSS = "PaneList { height: auto; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, look: ThemeStyles) -> None:
        super().__init__(id="panes")
        self.look = look
        self.panes: tuple[AdoptablePane, ...] = ()
        self.index = 0
        self._target_cells = 0

    def put(self, panes: Sequence[AdoptablePane]) -> None:
        self.panes, self.index = tuple(panes), 0
        longest = max((cells(clean_line(pane.target)) for pane in self.panes), default=0)
        self._target_cells = min(longest, TARGET_CELLS)
        self.refresh(layout=True)

    @property
    def chosen(self) -> AdoptablePane | None:
        return self.panes[self.index] if self.panes else None

    @property
    def _top(self) -> int:
        return max(0, min(self.index - ROWS // 2, len(self.panes) - ROWS))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(len(self.panes), ROWS)

    def render_line(self, y: int) -> Strip:
        at, width = self._top + y, self.size.width
        if at >= len(self.panes):
            return Strip.blank(width, self.look.style("text", "raised"))
        pane, here = self.panes[at], at == self.index
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
        step = {"up": -1, "k": -1, "down": 1, "j": 1}.get(event.key)
        if step is not None and self.panes:
            event.stop()
            self._go(self.index + step)

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.panes):
            self._go(self._top + event.y)

    def _go(self, index: int) -> None:
        self.index = max(0, min(index, len(self.panes) - 1))
        self.refresh()
        if isinstance(self.screen, AdoptDialog):
            self.screen.show_row(self, self.index - self._top)


class AdoptDialog(Dialog):
    """Up and down choose a pane, Enter adopts it."""

    title_text = "Adopt a tmux pane"

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.list = PaneList(look)
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
        choosing = (("up down", "choose"), ("enter", "adopt")) if self.list.panes else ()
        self.offer(*choosing, ("esc", "close"))

    async def _load_panes(self) -> None:
        """List the panes that can be adopted."""
        gateway = self.dashboard.gateway
        try:
            panes = await gateway.foreign_panes() if gateway is not None else ()
        except KasmonError as error:
            self.said.say()
            self.complain(error.message, error.hint)
            return
        self.list.put([pane for pane in panes if not pane.adopted and not pane.is_dead])
        self.said.say(("", Token.TEXT), (NOTICED if self.list.panes else NONE, Token.FAINT))
        self._offer_keys()

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and (pane := self.list.chosen) is not None:
            event.stop()
            self._adopt(pane.pane, clean_line(pane.session))

    def _adopt(self, pane: str, name: str) -> None:
        async def adopt(operations: "Operations") -> None:
            await operations.adopt_pane(pane, name)
            self.dashboard.main_view.table.await_name(name)

        self.run_operation(adopt)
