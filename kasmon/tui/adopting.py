"""The dialog that lists the panes of the user's own tmux, and has one of them watched."""

from collections.abc import Iterable, Sequence
from typing import Final

from textual import events
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from kasmon.clean import clean_line
from kasmon.errors import KasmonError
from kasmon.model.candidate import Candidate
from kasmon.model.text import Token, cells
from kasmon.tui.dialog import Dialog
from kasmon.tui.keys import Keys
from kasmon.tui.look import Look, Span
from kasmon.tui.reader import Sentences
from kasmon.tui.world import Adopt

ROWS: Final = 12
"""So many panes are in sight at once."""
TARGET_CELLS: Final = 28
"""A longer name of a pane is cut."""
NOTICED: Final = "Your tmux shows one more client then. Its sizes, names and options stay as they are."
NONE: Final = "Your own tmux has no pane that is not watched already."


class PaneList(Widget, can_focus=True):
    """Panes, one a line; up and down go from one to the next."""

    DEFAULT_CSS = "PaneList { height: auto; width: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, look: Look) -> None:
        super().__init__(id="panes")
        self.look = look
        self.panes: tuple[Candidate, ...] = ()
        self.index = 0
        self._target_cells = 0

    def put(self, panes: Sequence[Candidate]) -> None:
        """Offer these."""
        self.panes, self.index = tuple(panes), 0
        longest = max((cells(clean_line(pane.target)) for pane in self.panes), default=0)
        self._target_cells = min(longest, TARGET_CELLS)
        self.refresh(layout=True)

    @property
    def chosen(self) -> Candidate | None:
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
        if isinstance(self.screen, Adopting):
            self.screen.show_row(self, self.index - self._top)


class Adopting(Dialog):
    """Up and down choose a pane, Enter has it watched."""

    title_text = "Watch a session of your own tmux"

    def __init__(self, look: Look, keys: Keys) -> None:
        super().__init__(look, keys)
        self.list = PaneList(look)
        self.said = Sentences(look, id="adopting")
        self.said.say(("Looking for panes.", Token.FAINT))

    def inside(self) -> Iterable[Widget]:
        yield self.list
        yield self.said

    def on_mount(self) -> None:
        self._offer_keys()
        self.begin(self.list)

    def _offer_keys(self) -> None:
        choosing = (("up down", "choose"), ("enter", "watch it")) if self.list.panes else ()
        self.offer(*choosing, ("esc", "close"))

    def offer_panes(self, panes: Iterable[Candidate]) -> None:
        """Offer these panes, as far as they can be watched; they come a moment later than the dialog."""
        self.list.put([pane for pane in panes if not pane.adopted and not pane.is_dead])
        self.said.say(("", Token.TEXT), (NOTICED if self.list.panes else NONE, Token.FAINT))
        self._offer_keys()

    def nothing(self, error: KasmonError) -> None:
        """There is no tmux to look at."""
        self.said.say()
        self.complain(error.message, error.hint)

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter" and (pane := self.list.chosen) is not None:
            event.stop()
            self.want(Adopt(pane=pane.pane, name=clean_line(pane.session)))
