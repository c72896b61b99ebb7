"""A session's terminal in place: preview, focus, and the way back. The tap itself is tested on a real terminal."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Button

from kasmon.host.rpc.frames import Blur, Focus, Paste, Scroll, SendKeys, TerminalModes, Unwatch, Watch
from kasmon.model.permission import SessionId
from kasmon.tui.terminal.link import TerminalCommand
from kasmon.tui.terminal.view import KEYS_BYTES, RESIZE_S, FocusView, InputSender
from tests.support.wait import auntil
from tests.tui.terminal.test_widget import pushed

SESSION = SessionId("abcdefgh")


class Told:
    """A link that keeps what it was told."""

    def __init__(self) -> None:
        self.wishes: list[TerminalCommand] = []

    def send(self, wish: TerminalCommand) -> None:
        self.wishes.append(wish)

    def of(self, kind: type) -> list[TerminalCommand]:
        return [wish for wish in self.wishes if isinstance(wish, kind)]


class Dialog(ModalScreen[None]):
    def compose(self) -> ComposeResult:
        yield Button("fine")


class Dashboard(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.link = Told()
        self.happened: list[str] = []

    def compose(self) -> ComposeResult:
        yield Button("list")
        yield FocusView(self.link, SESSION)

    @property
    def view(self) -> FocusView:
        return self.query_one(FocusView)

    def on_focus_view_left(self) -> None:
        self.happened.append("left")

    def on_focus_view_read_wanted(self, message: FocusView.ReadWanted) -> None:
        self.happened.append(f"read {message.up}")

    def on_focus_view_waiting_clicked(self) -> None:
        self.happened.append("waiting clicked")

    def on_key(self) -> None:
        self.happened.append("key")


@asynccontextmanager
async def dashboard(columns: int = 60) -> AsyncIterator[tuple[Dashboard, Pilot[None]]]:
    async with (app := Dashboard()).run_test(size=(columns, 20)) as pilot:
        app.view.terminal.show(pushed("ready", columns=60, height=16))
        await pilot.pause()
        yield app, pilot


@asynccontextmanager
async def focused(columns: int = 60) -> AsyncIterator[tuple[Dashboard, Pilot[None]]]:
    async with dashboard(columns) as (app, pilot):
        app.view.enter()
        await auntil(lambda: app.link.of(Focus))
        yield app, pilot


async def test_a_preview_watches_and_accepts_no_key() -> None:
    async with dashboard() as (app, pilot):
        await pilot.press("a")

        assert [Watch(session=SESSION, rate_hz=20.0)] == app.link.wishes
        assert not app.view.bar.display
        assert not app.view.terminal.can_focus
    assert [Unwatch(session=SESSION)] == app.link.of(Unwatch)


async def test_on_focus_the_window_gets_the_terminals_size_once() -> None:
    async with focused() as (app, _):
        width, height = app.view.terminal.size

        assert [Focus(session=SESSION, columns=width, rows=height)] == app.link.of(Focus)
        assert (60, 16) == (width, height)
        assert app.view.bar.display


async def test_leaving_restores_the_preview() -> None:
    async with focused() as (app, pilot):
        await pilot.press("a", "ctrl+right_square_bracket", "b")
        await pilot.pause()

        assert [SendKeys(session=SESSION, data=b"a")] == app.link.of(SendKeys)
        assert [Blur(session=SESSION), Watch(session=SESSION, rate_hz=20.0)] == app.link.wishes[-2:]
        assert (["left", "key"], False) == (app.happened, app.view.is_live)


async def test_leaving_twice_is_leaving_once() -> None:
    async with focused() as (app, pilot):
        app.view.leave()
        app.view.leave()
        await pilot.pause()

        assert (1, ["left"]) == (len(app.link.of(Blur)), app.happened)


async def test_a_session_removed_in_focus_returns_the_focus() -> None:
    async with focused() as (app, pilot):
        await app.view.remove()
        await pilot.pause()

        assert [Blur, Watch, Unwatch] == [type(wish) for wish in app.link.wishes[-3:]]


async def test_a_widget_that_takes_textuals_focus_ends_the_terminals() -> None:
    """A click on the list, say."""
    async with focused() as (app, _):
        app.query_one(Button).focus()
        await auntil(lambda: app.happened)

        assert (["left"], False) == (app.happened, app.view.is_live)


async def test_a_dialog_above_gets_the_keys_while_it_is_open() -> None:
    async with focused() as (app, pilot):
        app.push_screen(Dialog())
        await pilot.pause()
        await pilot.press("x")
        assert [] == app.link.of(SendKeys)

        app.pop_screen()
        await pilot.pause()
        await pilot.press("y")
        assert [SendKeys(session=SESSION, data=b"y")] == app.link.of(SendKeys)
        assert app.view.is_live


async def test_another_window_of_the_desktop_does_not_end_the_focus() -> None:
    async with focused() as (app, pilot):
        app.app_focus = False
        await pilot.pause()
        app.app_focus = True
        await pilot.pause()

        assert app.view.is_live


async def test_a_resize_is_sent() -> None:
    async with focused() as (app, pilot):
        await pilot.resize_terminal(50, 18)
        await auntil(lambda: Focus(session=SESSION, columns=50, rows=14) in app.link.of(Focus))


async def test_an_empty_size_is_ignored() -> None:
    """A window that is hidden must not shrink the session's."""
    async with focused() as (app, pilot):
        app.view.terminal.styles.height = 0
        await auntil(lambda: not app.view.terminal.size.height)
        await pilot.pause()
        await auntil(lambda: app.view._resize_timer is None, what="a size that is on its way")
        app.view.terminal.styles.height = 9
        await auntil(lambda: Focus(session=SESSION, columns=60, rows=9) in app.link.of(Focus))

        assert 2 == len(app.link.of(Focus))


async def test_rapid_resizes_are_sent_ten_times_a_second() -> None:
    async with focused() as (app, pilot):
        began = time.monotonic()
        for step in range(40):
            app.view.terminal.styles.width = 20 + step
            await pilot.pause()
        await auntil(lambda: app.link.of(Focus)[-1] == Focus(session=SESSION, columns=59, rows=16))

        assert len(app.link.of(Focus)) <= (time.monotonic() - began) / RESIZE_S + 2


async def test_the_bar_names_the_session_and_how_to_leave() -> None:
    async with focused(columns=120) as (app, pilot):
        app.view.bar.label = "docs · working [b]"
        app.view.bar.waiting = 2
        app.view.terminal.show(pushed("x", columns=60, height=16, scrolled=7, history=90))
        await pilot.pause()

        assert (
            " docs · working [b] · 2 pending requests · 7 lines up · Ctrl+] or F12 list · Shift+Home search, copy"
            == str(app.view.bar.render())
        )
        app.view.bar.scrolled = ""
        assert str(app.view.bar.render()).endswith(" · Ctrl+] or F12 list · Shift+PgUp scrollback")
        app.view.bar.waiting = 1
        assert "1 pending request" in str(app.view.bar.render())


async def test_the_scrollback_opens_at_the_current_row_and_the_program_gets_no_key() -> None:
    async with focused() as (app, pilot):
        app.view.terminal.show(pushed("x", columns=60, height=16, scrolled=7, history=90))
        await pilot.press("shift+home")
        await pilot.pause()
        assert (["read 7"], []) == (app.happened, app.link.of(SendKeys))
        assert app.view.is_live

        app.view.terminal.show(pushed("x", columns=60, height=16, modes=TerminalModes(alternate=True)))
        await pilot.press("shift+home")
        await pilot.pause()
        assert (["read 7"], [SendKeys(session=SESSION, data=b"\x1b[1;2H")]) == (app.happened, app.link.of(SendKeys))


async def test_a_lost_host_is_reported_and_leaving_works() -> None:
    async with focused() as (app, pilot):
        app.view.show_loss("host process died")
        await pilot.pause()
        assert "host process died" in str(app.view.bar.render())

        await pilot.press("ctrl+right_square_bracket")
        await pilot.pause()
        assert ["left"] == app.happened
        app.view.terminal.show(pushed("back", columns=60, height=16))
        assert "gone" not in str(app.view.bar.render())


async def test_a_click_on_the_count_opens_the_request() -> None:
    async with focused() as (app, pilot):
        await pilot.click(app.view.bar)
        assert [] == app.happened
        app.view.bar.waiting = 1
        await pilot.click(app.view.bar)

        assert ["waiting clicked"] == app.happened


async def test_the_keys_on_the_line_below_can_be_clicked() -> None:
    async with focused() as (app, pilot):
        said = str(app.view.bar.render())
        await pilot.click(app.view.bar, offset=(said.index("scrollback"), 0))
        assert ["read 0"] == app.happened
        await pilot.click(app.view.bar, offset=(said.index("list"), 0))

        assert ["read 0", "left"] == app.happened


async def test_the_wheel_and_the_keyboard_share_one_place_in_the_history() -> None:
    link = Told()
    carrier = InputSender(link, SESSION, lambda: None)
    carrier.history = 5
    carrier.scroll(3)
    carrier.scroll(3)
    carrier.scroll(3)
    carrier.scroll(-1)
    carrier.send_keys(b"x")
    carrier.scroll(-3)
    carrier.scroll(2)
    carrier.paste("y")

    assert [3, 5, 4, 0, 2, 0] == [wish.up for wish in link.of(Scroll) if isinstance(wish, Scroll)]
    assert [Scroll, SendKeys, Scroll, Scroll, Paste] == [type(wish) for wish in link.wishes[3:]]


async def test_long_input_is_sent_in_pieces_that_tmux_accepts() -> None:
    link = Told()
    InputSender(link, SESSION, lambda: None).send_keys(bytes(600))

    assert [KEYS_BYTES, KEYS_BYTES, 600 - 2 * KEYS_BYTES] == [
        len(wish.data) for wish in link.of(SendKeys) if isinstance(wish, SendKeys)
    ]


async def test_modes_of_the_program_do_not_affect_a_preview() -> None:
    async with dashboard() as (app, pilot):
        app.view.terminal.show(pushed("x", columns=60, height=16, modes=TerminalModes(mouse="all", alternate=True)))
        await pilot.click(app.view.terminal)
        await pilot.pause()

        assert [Watch] == [type(wish) for wish in app.link.wishes]
