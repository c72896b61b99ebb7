"""The dialog that lists panes of the user's own tmux and background sessions of Claude Code, and adopts one of them."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from textual.strip import Strip
from textual.widget import Widget

from kasmon.errors import KasmonError
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.transcript.text import Token, cells
from kasmon.sanitize import clean_line
from kasmon.tui.dialogs.base import Dialog
from kasmon.tui.keymap import KeyMap
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.reader import Sentences
from kasmon.tui.widgets.row_list import RowList

if TYPE_CHECKING:
    from kasmon.tui.gateway.operations import Operations

ROWS: Final = 12
"""Number of panes visible at once."""
TARGET_CELLS: Final = 28
"""A longer name of a pane is cut."""
NOTICED: Final = "Your tmux gets one more client. Its sizes, names and options do not change."
KEPT_RUNNING: Final = "Claude Code's own service runs it. A stop here closes only its screen."
NONE: Final = "Your own tmux has no other pane to adopt."
BACKGROUND: Final = "background session"


class AdoptDialog(Dialog):
    """Up and down choose a pane, Enter adopts it."""

    title_text = "Adopt a tmux pane or background session"

    def __init__(self, look: ThemeStyles, keys: KeyMap) -> None:
        super().__init__(look, keys)
        self.list: RowList[AdoptablePane | BackgroundSession] = RowList(look, self._draw, most_rows=ROWS, id="panes")
        self._target_cells = 0
        self.said = Sentences(look, ("Loading panes…", Token.FAINT), id="adopting")

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
        """Show the panes, then also the background sessions: claude takes a second to list them."""
        gateway = self.dashboard.gateway
        if gateway is None:
            return
        problem: KasmonError | None = None
        try:
            panes = await gateway.foreign_panes()
        except KasmonError as error:
            panes, problem = (), error
        offered = [pane for pane in panes if not pane.adopted and not pane.is_dead]
        if offered:
            self._show(offered)
        background: Sequence[BackgroundSession] = ()
        with contextlib.suppress(KasmonError):  # claude is not installed, or an old one: it has none
            background = [each for each in await gateway.background_sessions() if not each.adopted]
        if problem is not None and not background:
            self.said.say()
            self.complain(problem.message, problem.hint)
            return
        self._show([*offered, *background])

    def _show(self, offered: Sequence[AdoptablePane | BackgroundSession]) -> None:
        self._target_cells = min(TARGET_CELLS, max((cells(_name(each)) for each in offered), default=0))
        self.list.put(offered)
        self._say_notice()
        self._offer_keys()

    def _say_notice(self) -> None:
        chosen = self.list.chosen
        notice = KEPT_RUNNING if isinstance(chosen, BackgroundSession) else NOTICED
        self.said.say(("", Token.TEXT), (notice if chosen is not None else NONE, Token.FAINT))

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self._say_notice()

    def _draw(self, row: AdoptablePane | BackgroundSession, is_selected: bool, width: int) -> Strip:
        name = self.look.fit(_name(row), min(self._target_cells, width * 2 // 5))
        left: list[StyledSpan] = [
            (self.look.mark("cursor") if is_selected else " ", "accent"),
            (f" {name}", "text.bold" if is_selected else "text"),
        ]
        if isinstance(row, BackgroundSession):
            left += [("  claude", "accent"), (f"  {BACKGROUND}, {row.activity}", "faint")]
            right: list[StyledSpan] = [(f"{row.id} ", "faint")]
        else:
            left += [(f"  {row.agent or row.command}", "accent" if row.agent else "soft"), (f"  {row.title}", "faint")]
            right = [(f"{row.width}x{row.height} ", "faint")]
        return self.look.between(left, right, width, "selected" if is_selected else "raised")

    def submit(self) -> None:
        if (row := self.list.chosen) is None:
            return

        async def adopt(operations: "Operations") -> None:
            if isinstance(row, BackgroundSession):
                name = await operations.adopt_background(row.id)
            else:
                name = clean_line(row.session)
                await operations.adopt_pane(row.pane, name)
            self.dashboard.main_view.table.await_name(name)

        self.run_operation(adopt)


def _name(row: AdoptablePane | BackgroundSession) -> str:
    return row.label if isinstance(row, BackgroundSession) else clean_line(row.target)
