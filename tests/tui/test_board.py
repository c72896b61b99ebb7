"""What waits for a repaint is painted, also when a layout comes in between and a dialog lies over it."""

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from kasmon.tui.board import Board


class Counting(Widget):
    """Says how often it was drawn."""

    drawn = 0

    def render_line(self, y: int) -> Strip:
        self.drawn += y == 0
        return Strip.blank(self.size.width)


class Two(App[None]):
    CSS = "Counting { height: 3; }  ModalScreen { align: center middle; }"

    def get_default_screen(self) -> Screen[None]:
        return Board(id="_default")

    def compose(self) -> ComposeResult:
        yield Counting()
        yield Static("below", id="below")


async def test_a_layout_under_a_dialog_loses_no_repaint() -> None:
    app = Two()
    async with app.run_test() as pilot:
        await app.push_screen(ModalScreen[None]())
        await pilot.pause()
        counting, below = app.screen_stack[0].query_one(Counting), app.screen_stack[0].query_one("#below", Static)
        board = app.screen_stack[0]

        counting.refresh(Region(0, 0, 10, 1))
        board._dirty_widgets.add(counting)
        board._layout_required = True
        board._on_timer_update()

        assert counting in board._dirty_widgets
        below.refresh(layout=True)
        await pilot.pause()


def test_the_private_names_that_the_board_stands_on_are_there() -> None:
    """A new Textual that lacks one of these needs a look at `kasmon/tui/board.py`."""
    assert {"_on_timer_update", "_dirty_widgets", "_layout_required"} <= {*dir(Screen), *vars(Screen(id="x"))}
