"""What a dialog lies over looks as Textual draws it, and only the lines of it that changed are drawn anew."""

from typing import Any

import pytest
from rich.segment import Segment
from textual._context import visible_screen_stack
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.geometry import Region, Size
from textual.screen import ModalScreen, Screen
from textual.widgets import Label, Static, TextArea

from kasmon.tui.textual_ext.backdrop import Backdrop
from tests.support.wait import auntil


class Theirs(ModalScreen[None]):
    def compose(self) -> ComposeResult:
        yield Label("over it", id="card")


class Ours(Backdrop, Theirs):
    pass


class Below(App[None]):
    CSS = """
    ModalScreen { align: center middle; background: $background 60%; }
    ModalScreen.-opaque { background: darkblue; }
    ModalScreen.-clear { background: transparent; }
    #card { background: darkred; width: 20; height: 3; }
    Horizontal { height: 3; border: round green; background: darkgreen 40%; }
    .half { width: 1fr; color: yellow; text-style: bold; }
    """

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label("left [link='https://a.b']a link[/] 日本", classes="half")
            yield Label("right", classes="half")
        for number in range(8):
            yield Static(f"row {number}", id=f"row{number}")


def picture(app: App[None]) -> list[list[Segment]]:
    """The screen on top, as it is drawn."""
    update: Any = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    lines = [[*strips] for strips in update.strips]
    return [[*_joined(line)] for line in lines]


def _joined(line: list[Any]) -> list[Segment]:
    return [*Segment.simplify(piece for strip in line for piece in strip)]


@pytest.mark.parametrize(("way", "layers"), [("", 1), ("", 2), ("-opaque", 1), ("-clear", 1)])
async def test_a_backdrop_looks_as_textual_draws_it_also_when_it_changes(way: str, layers: int) -> None:
    async def pictures(kind: type[Screen[None]]) -> list[list[list[Segment]]]:
        async with (app := Below()).run_test(size=(60, 16)) as pilot:
            for _ in range(layers):
                await app.push_screen(kind(classes=way))
                await pilot.pause()
            seen = [picture(app)]
            app.screen_stack[0].query_one("#row6", Static).update("another text, 漢字")
            await pilot.pause()
            if layers == 1 and way != "-opaque":
                await auntil(lambda: "another text" in text_of(picture(app)))
            seen.append(picture(app))
            await pilot.resize_terminal(40, 14)
            await pilot.pause()
            app.theme = "nord"
            await pilot.pause()
            return [*seen, picture(app)]

    wanted = await pictures(Theirs)
    assert (layers, way) != (1, "") or wanted[0] != wanted[1]
    assert wanted == await pictures(Ours)


async def test_only_changed_lines_are_rendered() -> None:
    async with (app := Below()).run_test(size=(60, 16)) as pilot:
        screen = Ours()
        await app.push_screen(screen)
        await pilot.pause()
        picture(app)
        before = [*screen._faded]
        screen.refresh(Region(0, 9, 60, 2), Region(4, 12, 3, 1))  # what the screen below tells when it changed there
        picture(app)

        assert 16 == len(before)
        assert [9, 10, 12] == [y for y in range(16) if before[y] is not screen._faded[y]]
        picture(app)
        assert "row 6" in screen._faded[9].text


async def test_a_window_that_was_enlarged_gets_whole_lines() -> None:
    """Textual ends the dashboard over a line that is shorter than what it asked for."""
    async with (app := Below()).run_test(size=(60, 16)) as pilot:
        await app.push_screen(Ours())
        await pilot.pause()
        visible_screen_stack.set(app._background_screens)
        larger = app.screen.render_lines(Region(0, 0, 80, 20))

        assert [80] * 20 == [line.cell_length for line in larger]


async def test_nothing_of_a_narrower_window_is_left() -> None:
    async with (app := Below()).run_test(size=(60, 16)) as pilot:
        await app.push_screen(Ours())
        await pilot.pause()
        screen = app.screen
        screen._size = Size(70, 16)
        screen._dirty_regions.clear()
        visible_screen_stack.set(app._background_screens)

        assert [70] * 16 == [line.cell_length for line in screen.render_lines(Region(0, 0, 70, 16))]


async def test_a_widget_that_is_removed_below_a_dialog_is_gone_from_its_backdrop_at_once() -> None:
    """Textual lays out the top screen only. A text area that is drawn after its removal raises, and ends the app."""
    async with (app := Below()).run_test(size=(60, 16)) as pilot:
        before = picture(app)
        area = TextArea("to be removed")
        await app.mount(area, before="#row0")
        await pilot.pause()
        await app.push_screen(Ours())
        await pilot.pause()
        assert "to be removed" in text_of(picture(app))

        await area.remove()
        app.screen.refresh()

        after = text_of(picture(app))
        assert "to be removed" not in after
        assert text_of(before).splitlines()[3:5] == after.splitlines()[3:5]


def text_of(lines: list[list[Segment]]) -> str:
    return "\n".join("".join(segment.text for segment in line) for line in lines)
