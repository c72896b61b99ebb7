"""What waits for a repaint is painted, also when a layout comes in between and a dialog lies over it."""

import asyncio

import pytest
from textual._compositor import LayoutUpdate
from textual.app import App, ComposeResult
from textual.events import Resize
from textual.geometry import Region, Size
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from kasmon.tui.textual_ext.screen import MainScreen
from tests.support.wait import auntil


class Counting(Widget):
    """Says how often it was drawn."""

    drawn = 0

    def render_line(self, y: int) -> Strip:
        self.drawn += y == 0
        return Strip.blank(self.size.width)


class Two(App[None]):
    CSS = "Counting { height: 3; }  ModalScreen { align: center middle; }"

    def get_default_screen(self) -> Screen[None]:
        return MainScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield Counting()
        yield Static("below", id="below")


async def test_a_layout_under_a_dialog_loses_no_repaint() -> None:
    async with (app := Two()).run_test() as pilot:
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


class Sized(Widget):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[int] = []

    def on_resize(self, event: Resize) -> None:
        self.told.append(event.size.width)


async def test_a_new_widget_that_was_queried_gets_its_size() -> None:
    async with (app := Two()).run_test():
        new = Sized()
        board = app.screen
        app.mount(new)
        while new not in board._compositor.full_map:
            board._compositor._full_map_invalidated = True
            await asyncio.sleep(0)
        await auntil(lambda: new.told, what="its size")

        assert [80] == new.told[:1]


async def test_a_window_that_was_small_for_a_moment_is_rendered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its terminal has forgotten the rest. Textual hears of the last size alone, which is the one it had."""
    async with (app := Two()).run_test() as pilot:
        await pilot.pause()
        drawn: list[object] = []
        monkeypatch.setattr(app, "_display", lambda _screen, what: drawn.append(what))
        for size in (Size(10, 5), app.size):
            app.post_message(Resize(size, size))
        await auntil(lambda: any(isinstance(each, LayoutUpdate) for each in drawn))

        assert app.size.region in [each.region for each in drawn if isinstance(each, LayoutUpdate)]
