"""What a terminal shows of the rows that its host pushes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from kasmon.host.rpc.frames import TerminalCursor, TerminalModes, TerminalRows
from kasmon.model.permission import SessionId
from kasmon.tui.terminal import widget as module
from kasmon.tui.terminal.sgr import strip_of
from kasmon.tui.terminal.widget import TerminalWidget
from kasmon.tui.textual_ext.repaint import ImmediatePainter, RowsUpdate
from tests.support.wait import auntil


class Room(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        self.displayed: Callable[[RowsUpdate], object] = lambda _: None

    def compose(self) -> ComposeResult:
        yield TerminalWidget()

    def post_display_hook(self) -> None:
        self.frames += 1

    def _display(self, screen: Screen[object], renderable: object) -> None:
        if isinstance(renderable, RowsUpdate):
            self.displayed(renderable)
        super()._display(screen, renderable)  # type: ignore[arg-type]

    @property
    def terminal(self) -> TerminalWidget:
        return self.query_one(TerminalWidget)


@asynccontextmanager
async def room(width: int = 20, height: int = 6) -> AsyncIterator[Room]:
    async with (app := Room()).run_test(size=(width, height)) as pilot:
        await pilot.pause()
        yield app


def pushed(*texts: str, columns: int = 20, height: int | None = None, **more: object) -> TerminalRows:
    """A full push of *texts*, from the top."""
    values = {"cursor": TerminalCursor(), "modes": TerminalModes(), "full": True, **more}
    return TerminalRows(
        session=SessionId("abcdefgh"),
        columns=columns,
        height=len(texts) if height is None else height,
        changed=tuple(enumerate(texts)),
        **values,  # type: ignore[arg-type]
    )


def some(changed: dict[int, str], like: TerminalRows, **more: object) -> TerminalRows:
    """A later push of the rows that changed."""
    values = {"cursor": like.cursor, "modes": like.modes, **more}
    return TerminalRows(
        session=like.session,
        columns=like.columns,
        height=like.height,
        changed=tuple(changed.items()),
        **values,  # type: ignore[arg-type]
    )


def seen(terminal: TerminalWidget) -> list[str]:
    return [terminal.render_line(y).text.rstrip() for y in range(terminal.size.height)]


def reversed_cells(terminal: TerminalWidget) -> list[tuple[int, int, str]]:
    """Row, first cell and text of what is drawn in reverse."""
    found = []
    for y in range(terminal.size.height):
        x = 0
        for segment in terminal.render_line(y):
            if segment.style is not None and segment.style.reverse:
                found.append((y, x, segment.text))
            x += segment.cell_length
    return found


async def test_rows_are_shown_and_changed_ones_replaced() -> None:
    async with room() as app:
        first = pushed("one", "\x1b[31mtwo\x1b[0m", "three", "", "", "")
        app.terminal.show(first)
        app.terminal.show(some({1: "2"}, first))

        assert ["one", "2", "three", "", "", ""] == seen(app.terminal)


async def test_only_rows_that_changed_are_parsed_and_none_that_scrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def noted(row: str) -> Strip:
        parsed.append(row)
        return strip_of(row)

    monkeypatch.setattr(module, "strip_of", noted)
    async with room() as app:
        first = pushed("one", "two", "three", "", "", "")
        app.terminal.show(first)
        seen(app.terminal)
        parsed.clear()
        app.terminal.show(some({0: "one", 1: "2"}, first))
        seen(app.terminal)

        assert ["2"] == parsed

        app.terminal.show(first)
        seen(app.terminal)
        parsed.clear()
        app.terminal.show(some({0: "two", 1: "three", 2: "four"}, first))

        assert ["two", "three", "four", "", "", ""] == seen(app.terminal)
        assert ["four"] == parsed


async def test_a_full_push_of_another_size_drops_the_earlier_rows() -> None:
    async with room() as app:
        app.terminal.show(pushed("one", "two", "three", "four", "five", "six"))
        app.terminal.show(pushed("1", height=3))
        assert ["1", "", "", "", "", ""] == seen(app.terminal)

        app.terminal.show(some({2: "3"}, pushed(columns=30, height=3)))
        assert ["", "", "3", "", "", ""] == seen(app.terminal)


async def test_a_push_for_rows_out_of_range_is_ignored() -> None:
    async with room() as app:
        first = pushed("one", "two")
        app.terminal.show(first)
        app.terminal.show(some({7: "x", -1: "y"}, first))

        assert ["one", "two", "", "", "", ""] == seen(app.terminal)


async def test_a_larger_pane_is_cropped_to_its_last_rows_with_text() -> None:
    rows = ["abcdefghijklmnopqrstuvwxyz"] + [f"row {y}" for y in range(1, 9)] + [""] * 31
    async with room() as app:
        app.terminal.show(pushed(*rows, columns=120))
        assert [f"row {y}" for y in range(3, 9)] == seen(app.terminal)

        app.terminal.show(pushed(*rows[:2], columns=120, height=40))
        assert ["abcdefghijklmnopqrst", "row 1", "", "", "", ""] == seen(app.terminal)


async def test_the_crop_keeps_the_cursor_in_sight() -> None:
    rows = [f"row {y}" for y in range(40)]
    async with room() as app:
        app.terminal.show(pushed(*rows, cursor=TerminalCursor(0, 20, True)))
        assert "row 20" in seen(app.terminal)

        app.terminal.show(pushed(*rows[:10], *[""] * 30, cursor=TerminalCursor(0, 30, True)))
        assert 25 == app.terminal.corner.y


async def test_a_wide_character_at_the_edge_is_not_halved() -> None:
    async with room(width=5) as app:
        app.terminal.show(pushed("abcd漢", "x", columns=6))

        assert [5] * 6 == [app.terminal.render_line(y).cell_length for y in range(6)]
        assert "abcd" == seen(app.terminal)[0]


async def test_the_cursor_is_drawn_in_focus_only() -> None:
    async with room() as app:
        app.terminal.show(pushed("one", "two", cursor=TerminalCursor(1, 1, True)))
        assert [] == reversed_cells(app.terminal)

        app.terminal.live = True
        assert [(1, 1, "w")] == reversed_cells(app.terminal)
        app.terminal.show(pushed("one", "two", cursor=TerminalCursor(9, 0, True)))
        assert [(0, 9, " ")] == reversed_cells(app.terminal)
        app.terminal.show(pushed("one", "two", cursor=TerminalCursor(9, 0, False)))
        assert [] == reversed_cells(app.terminal)


@pytest.mark.parametrize("x", [2, 3])
async def test_a_wide_character_under_the_cursor_stays_whole(x: int) -> None:
    async with room() as app:
        app.terminal.live = True
        app.terminal.show(pushed("漢字x", cursor=TerminalCursor(x, 0, True)))

        assert [(0, 2, "字")] == reversed_cells(app.terminal)
        assert "漢字x" == seen(app.terminal)[0]


async def test_a_scrolled_view_shows_how_far() -> None:
    async with room(width=30) as app:
        app.terminal.show(pushed("text", columns=30, scrolled=12, history=400, cursor=TerminalCursor(0, 0, True)))
        app.terminal.live = True
        assert [(0, 10, " 12 of 400 lines up ")] == reversed_cells(app.terminal)
        assert seen(app.terminal)[0].endswith("12 of 400 lines up")

        app.terminal.show(pushed("text", columns=30, modes=TerminalModes(copy_mode=True)))
        assert seen(app.terminal)[0].endswith("copy mode")


async def test_the_programs_default_colours_are_the_themes() -> None:
    async with room() as app:
        app.terminal.show(pushed("plain", "\x1b[7mreversed"))
        styles = [app.terminal.render_line(y)._segments[0].style for y in (0, 1, 5)]

        assert all(style is not None and style.color is not None and style.bgcolor is not None for style in styles)


async def test_in_focus_a_change_is_painted_before_show_returns() -> None:
    async with room() as app:
        first = pushed("one", "two", "", "", "", "")
        app.terminal.show(first)
        app.terminal.live = True
        await app._animator.wait_until_complete()
        await until_painted(app)

        frames = app.frames
        app.terminal.show(some({1: "2"}, first))
        assert frames + 1 == app.frames

        app.terminal.show(some({1: "3"}, first))
        assert frames + 1 == app.frames, "right after that, the next frame is early enough"


async def test_a_preview_is_painted_at_once_too() -> None:
    async with room() as app:
        first = pushed("one", "two", "", "", "", "")
        app.terminal.show(first)
        await until_painted(app)
        frames = app.frames
        app.terminal.show(some({1: "2"}, first))

        assert frames + 1 == app.frames


async def test_a_row_painted_at_once_equals_that_of_the_next_frame() -> None:
    async with room() as app:
        first = pushed("one", "two", "", "", "", "", cursor=TerminalCursor(1, 1, True))
        app.terminal.show(first)
        app.terminal.live = True
        await until_painted(app)
        painted: list[RowsUpdate] = []
        app.displayed = painted.append
        app.terminal.show(some({1: "\x1b[31mzwei"}, first))

        assert [(0, 1)] == [(x, y) for update in painted for x, y, _ in update.rows]
        assert painted[0].rows[0][2].text.startswith("zwei")
        assert app.screen._compositor.render_strips()[1] == painted[0].rows[0][2]
        assert painted[0].render_segments(app.console).startswith("\x1b[2;1H")


async def test_a_widget_over_a_terminal_is_not_painted_over() -> None:
    """A toast, say."""
    async with room() as app:
        first = pushed("one", "two", "", "", "", "")
        app.terminal.show(first)
        app.terminal.live = True
        cover = Static("above")
        cover.styles.layer, cover.styles.offset, cover.styles.height = "above", (0, 1), 2
        app.screen.styles.layers = "base above"
        await app.mount(cover)
        await until_painted(app)
        frames = app.frames
        app.terminal.show(some({1: "2"}, first))
        assert frames == app.frames

        await until_painted(app)
        app.terminal.show(some({5: "6"}, first))
        assert app.frames > frames


async def test_a_textual_without_the_fast_path_still_paints(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Region, ...]] = []
    async with room() as app:
        with monkeypatch.context() as patch:
            patch.setattr(app.terminal, "refresh", lambda *regions: asked.append(regions))
            patch.delattr(Compositor, "visible_widgets")
            assert not ImmediatePainter().paint(app.terminal, [Region(0, 1, 20, 1)])

    assert [(Region(0, 1, 20, 1),)] == asked


async def until_painted(app: Room) -> None:
    """Wait until nothing waits to be painted."""
    await auntil(
        lambda: (
            not (app.screen._layout_required or app.screen._repaint_required or app.screen._dirty_widgets)
            and not app.terminal._repaint_required
            and not app.terminal._layout_required
        )
    )
