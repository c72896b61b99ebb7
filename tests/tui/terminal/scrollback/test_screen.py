"""Reading what a terminal has printed: the keys, the mouse, the clipboard, and links that are looked at first."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from textual.pilot import Pilot

from kasmon.errors import UnavailableError
from kasmon.host.rpc.frames import SendKeys
from kasmon.model.commands import Mode
from kasmon.tui.actions.dialogs import offer_link
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.terminal.scrollback.screen import ScrollbackScreen
from kasmon.tui.terminal.scrollback.view import ScrollbackView
from kasmon.tui.terminal.view import FocusView
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import StillClock, fleet, working
from tests.support.tui.fake_gateway import gateway_of, text_of
from tests.support.wait import auntil

LINES = (
    *(f"line {number}" for number in range(200)),
    "a long one " + "wrapped " * 20 + "to its end   ",
    "see https://a.example/path?x=1.",
    "漢字 \x1b[31mred\x1b[m text",
    "$",
)


def view_of(pilot: Pilot[None]) -> ScrollbackView:
    return pilot.app.screen.query_one(ScrollbackView)


def copied(pilot: Pilot[None]) -> list[str]:
    gateway = gateway_of(pilot.app)
    return gateway.passed(Operations.copy_text, "text")


def opened(pilot: Pilot[None]) -> list[str]:
    gateway = gateway_of(pilot.app)
    return gateway.passed(Operations.open_link, "address")


@asynccontextmanager
async def reading(lines: Sequence[str] = LINES) -> AsyncIterator[Pilot[None]]:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": lines}), (80, 24)) as pilot:
        await pilot.press("v")
        await auntil(lambda: isinstance(app.screen, ScrollbackScreen))
        await pilot.pause()
        yield pilot


async def test_the_view_starts_at_the_end_and_esc_returns_to_the_list() -> None:
    async with reading() as pilot:
        assert "漢字 red text" in text_of(pilot.app)
        assert "line 204 of 204" in text_of(pilot.app)
        await pilot.press("escape")
        await pilot.pause()

        assert not isinstance(pilot.app.screen, ScrollbackScreen)
        assert cast(Kasmon, pilot.app).list_has_keys


async def test_opened_inside_the_session_the_view_starts_at_the_same_row_and_returns_into_it() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": LINES}), (80, 24)) as pilot:
        await pilot.press("enter")
        await auntil(lambda: app.main_view.focused_inside)
        view = cast(FocusView, app.session_pane.widget)
        await auntil(lambda: view.is_live)
        view.terminal.scrolled = 50
        await pilot.press("shift+home")
        await auntil(lambda: isinstance(app.screen, ScrollbackScreen))
        await pilot.pause()
        reading = view_of(pilot)
        assert 50 == len(reading.buffer.rows) - reading.size.height - reading.top
        await pilot.press("/", *"line 120", "enter", "y", "escape", "escape")
        await pilot.pause()

        assert ["line 120"] == copied(pilot)
        assert view.is_live
        assert view.terminal.has_focus
        await pilot.press("z")
        link = gateway_of(app).link
        assert [b"z"] == [wish.data for wish in link.told if isinstance(wish, SendKeys)]


async def test_the_program_gets_no_key_of_the_view() -> None:
    async with reading() as pilot:
        await pilot.press("j", "k", "g", "x", "a", "enter")
        gateway = gateway_of(pilot.app)

        assert not [wish for wish in gateway.link.told if isinstance(wish, SendKeys)]


async def test_keys_move_to_the_top_the_end_and_by_pages() -> None:
    async with reading() as pilot:
        await pilot.press("g")
        await pilot.pause()
        assert "line 1 of 204" in text_of(pilot.app)
        assert "line 20" in text_of(pilot.app)
        await pilot.press("pagedown")
        await pilot.pause()
        assert view_of(pilot).size.height == view_of(pilot).top
        await pilot.press("G")
        await pilot.pause()
        assert "漢字" in text_of(pilot.app)


async def test_matches_are_found_upwards_shown_and_cleared() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"line 11", "enter")
        await pilot.pause()
        assert 119 == view_of(pilot).cursor.line
        assert "11 matches" in text_of(pilot.app)
        styles = [segment.style for segment in view_of(pilot).render_line(119 - view_of(pilot).top)]
        assert 2 <= len({str(style) for style in styles})

        await pilot.press("n", "n")
        assert 117 == view_of(pilot).cursor.line
        await pilot.press("N")
        assert 118 == view_of(pilot).cursor.line
        await pilot.press("escape")
        await pilot.pause()
        assert not view_of(pilot).matches
        assert isinstance(pilot.app.screen, ScrollbackScreen)


async def test_a_search_without_matches_is_reported() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"nowhere")
        await pilot.pause()
        assert "not found" in text_of(pilot.app)
        await pilot.press("escape")
        await pilot.pause()
        assert view_of(pilot).has_focus


async def test_the_line_at_the_cursor_is_copied_whole_though_it_is_wrapped() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"to its end", "enter", "y")
        await pilot.pause()

        assert [("a long one " + "wrapped " * 20 + "to its end")] == copied(pilot)


async def test_a_selection_made_by_keys_is_copied_with_both_its_ends() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"see https", "enter", "v", "l", "l", "y")
        await pilot.press("v", "j", "y")
        await pilot.pause()

        assert ["see", "e https://a.example/path?x=1.\n漢字"] == copied(pilot)


async def test_a_drag_selects_and_copies() -> None:
    async with reading() as pilot:
        view = view_of(pilot)
        row = view.buffer.row_of(view.cursor) - view.top - 1
        await pilot.mouse_down(view, offset=(0, row))
        await pilot.hover(view, offset=(8, row))
        await pilot.mouse_up(view, offset=(8, row))
        await pilot.pause()

        assert ["漢字 red"] == copied(pilot)
        assert not view.selects


async def test_the_whole_screen_is_copied() -> None:
    async with reading([f"row {number}  " for number in range(5)]) as pilot:
        await pilot.press("Y")
        await pilot.pause()

        assert ["row 0\nrow 1\nrow 2\nrow 3\nrow 4"] == copied(pilot)


async def test_a_link_is_opened_only_after_a_confirmation() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"see", "enter", "enter")
        await pilot.pause()
        assert "Open a link" in text_of(pilot.app)
        assert "https://a.example/path?x=1" in text_of(pilot.app)
        assert [] == opened(pilot)
        await pilot.press("enter", "space", "escape")
        assert [] == opened(pilot)

        await pilot.press("enter")
        await pilot.pause()
        cast(StillClock, cast(Kasmon, pilot.app).clock).forward(5.0)
        await pilot.press("y")
        await pilot.pause()
        assert ["https://a.example/path?x=1"] == opened(pilot)


async def test_a_click_on_a_link_opens_only_the_confirmation() -> None:
    async with reading() as pilot:
        view = view_of(pilot)
        await pilot.click(view, offset=(6, view.buffer.row_of(view.cursor) - view.top - 2))
        await pilot.pause()

        assert "Open a link" in text_of(pilot.app)
        assert [] == opened(pilot)


async def test_hidden_parts_of_an_address_are_shown() -> None:
    async with reading() as pilot:
        offer_link(cast(Kasmon, pilot.app), "https://аррӏе.example/\u202egpj")
        await pilot.pause()

        assert "⟨U+202E⟩" in text_of(pilot.app)
        assert "xn--80ak6aa92e.example" in text_of(pilot.app)
        offer_link(cast(Kasmon, pilot.app), "javascript:alert(1)")
        await pilot.pause()
        assert "javascript" not in text_of(pilot.app)


@pytest.mark.parametrize("lines", [(), ("",)], ids=["nothing", "an empty line"])
async def test_a_terminal_without_text_can_be_opened_and_closed(lines: Sequence[str]) -> None:
    async with reading(lines) as pilot:
        await pilot.press("j", "k", "g", "G", "v", "l", "y", "Y", "/", "x", "enter", "n", "escape", "enter")
        await pilot.press("escape", "escape")
        await pilot.pause()

        assert not isinstance(pilot.app.screen, ScrollbackScreen)


async def test_the_reason_of_an_unreadable_terminal_is_shown() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX))), (100, 24), notifications=True) as pilot:
        gateway_of(app).refusing = UnavailableError("its pane is gone.")
        await pilot.press("v")
        await pilot.pause()
        await pilot.pause()

        assert "Its pane is gone" in text_of(app)


async def test_a_smaller_window_keeps_the_cursor_visible() -> None:
    async with reading() as pilot:
        await pilot.press("/", *"line 50", "enter")
        await pilot.resize_terminal(30, 12)
        await pilot.pause()

        assert 50 == view_of(pilot).cursor.line
        assert "line 50" in text_of(pilot.app)
