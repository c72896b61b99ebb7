"""Keys that come all at once, as from a fast hand or a paste, go where they would have gone one by one."""

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from kasmon.host.rpc.frames import SendKeys
from kasmon.model.commands import Mode
from kasmon.model.transcript.rows import RowPosition
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.transcript.prompt_box import PromptBox, TextBox
from tests.support.dashboard_scenes import armed, kasmon, run_app
from tests.support.sample_fleet import asking, fleet, idle, working
from tests.support.sample_transcripts import MAKE, long_talk
from tests.support.tui.fake_gateway import gateway_of
from tests.support.wait import auntil

ENTER, BACK, HOME, TAB, ESC = "\r", "\x7f", "\x01", "\t", "\x1b"
NAMES = {"/": "slash", ENTER: "enter", " ": "space", BACK: "backspace", HOME: "ctrl+a", TAB: "tab", ESC: "escape"}


async def at_once(pilot: Pilot[None], text: str) -> None:
    """Type *text* without a pause between its keys."""
    for character in text:
        pilot.app.post_message(events.Key(NAMES.get(character, character), character))
    await pilot.pause()
    await pilot.pause()


def wished(pilot: Pilot[None]) -> list[object]:
    return list(gateway_of(pilot.app).calls)


async def test_keys_after_the_filter_key_are_the_filter() -> None:
    async with run_app(app := kasmon(fleet(idle("web"), working("docs"), asking("fix-auth")))) as pilot:
        await at_once(pilot, "/web")
        await auntil(lambda: app.main_view.table.view.filter == "web")

        assert ["web"] == [session.id for session in app.main_view.table.shown()]


async def test_keys_after_the_end_of_the_filter_belong_to_the_list() -> None:
    async with run_app(app := kasmon(fleet(idle("web"), working("docs"), asking("fix-auth")))) as pilot:
        await at_once(pilot, f"/web{ENTER}r")
        await auntil(lambda: app.screen.query("#new-name"))

        assert "web" == app.screen.query_one("#new-name", LineInput).value
        assert "web" == app.main_view.table.view.filter


async def test_keys_after_enter_are_typed_and_do_nothing_in_the_list() -> None:
    """`x` would stop the session, `q` would quit."""
    async with run_app(app := kasmon(fleet(idle("readme"), idle("zoo")))) as pilot:
        await at_once(pilot, f"{ENTER}xyqX")
        await auntil(lambda: app.query(PromptBox))
        await auntil(lambda: app.query_one(PromptBox).text)

        assert "xyqX" == app.query_one(PromptBox).text
        assert 1 == len(app.screen_stack)
        assert [] == wished(pilot)


async def test_keys_after_enter_on_a_terminal_do_nothing_in_the_list() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE})) as pilot:
        await at_once(pilot, f"{ENTER}xyq")

        assert 1 == len(app.screen_stack)
        assert [] == wished(pilot)
        told = b"".join(wish.data for wish in gateway_of(app).link.told if isinstance(wish, SendKeys))
        assert b"xyq".endswith(told)


async def test_keys_after_the_new_session_key_do_nothing_in_the_list() -> None:
    async with run_app(app := kasmon(fleet(working("readme")))) as pilot:
        await at_once(pilot, "nxyXyq")
        await auntil(lambda: app.screen.query("#name"))
        await auntil(lambda: app.screen.query_one("#name", LineInput).value)

        assert "xyXyq" == app.screen.query_one("#name", LineInput).value
        assert 2 == len(app.screen_stack)
        assert [] == wished(pilot)


async def test_keys_after_the_message_key_do_nothing_in_the_list() -> None:
    async with run_app(app := kasmon(fleet(working("readme")))) as pilot:
        await at_once(pilot, "mxyq")
        await auntil(lambda: app.screen.query("#message"))
        await auntil(lambda: app.screen.query_one("#message", TextBox).text)

        assert "xyq" == app.screen.query_one("#message", TextBox).text
        assert 2 == len(app.screen_stack)
        assert [] == wished(pilot)


async def test_a_yes_pressed_with_the_question_is_no_yes() -> None:
    async with run_app(app := kasmon(fleet(working("readme")))) as pilot:
        await at_once(pilot, "xy")

        assert 2 == len(app.screen_stack)
        assert [] == wished(pilot)


async def test_a_correction_typed_at_once_is_applied() -> None:
    """In the prompt box, in the search, in the filter: Backspace is no slower than a letter."""
    async with run_app(app := kasmon(fleet(idle("readme"), idle("zoo")))) as pilot:
        await at_once(pilot, f"/raed{BACK * 3}ead")
        await auntil(lambda: app.main_view.table.view.filter == "read")
        await at_once(pilot, f"{ENTER}{ENTER}")
        await auntil(lambda: app.query(PromptBox))
        await at_once(pilot, f"teh{BACK * 2}he day{HOME}In ")
        assert "In the day" == app.query_one(PromptBox).text

        session_view = app.session_pane.session_view
        assert session_view is not None
        await at_once(pilot, TAB)
        await at_once(pilot, f"/lats{BACK * 2}st")
        assert "last" == session_view.find_bar.words.words


async def test_a_search_text_and_the_following_keys_may_come_at_once() -> None:
    app = kasmon(fleet(idle("readme"), idle("zoo")), transcripts={"readme": long_talk(30)})
    async with run_app(app) as pilot:
        await pilot.press("v")
        session_view = app.session_pane.session_view
        assert session_view is not None
        await at_once(pilot, f"/step 2{ENTER}")
        assert "step 2" == session_view.find_bar.words.words
        assert session_view.find_bar.has_class("-shown")
        await auntil(lambda: session_view.screen_of_events.place() == RowPosition(3 * 29 + 2, 1))

        await at_once(pilot, f"/nowhere{ESC}")
        assert session_view.screen_of_events.finder.search is None
        assert not session_view.find_bar.has_class("-shown")


async def test_keys_after_tab_in_a_dialog_belong_to_the_next_field() -> None:
    async with run_app(app := kasmon(fleet(idle("web")))) as pilot:
        await at_once(pilot, f"nfix{TAB}{TAB}{TAB}{HOME}x")
        await auntil(
            lambda: app.screen.query("#folder") and app.screen.query_one("#folder", LineInput).value.startswith("x")
        )

        assert "fix" == app.screen.query_one("#name", LineInput).value


async def test_keys_after_backspace_in_a_dialog_are_appended() -> None:
    async with run_app(app := kasmon(fleet(idle("web")))) as pilot:
        await at_once(pilot, f"nfixs{BACK}ed")
        await auntil(lambda: app.screen.query("#name") and app.screen.query_one("#name", LineInput).value)

        assert "fixed" == app.screen.query_one("#name", LineInput).value


async def test_keys_after_backspace_in_a_reason_are_appended() -> None:
    async with run_app(app := kasmon(fleet(asking("fix-auth")))) as pilot:
        await pilot.press("i")
        await armed(pilot)
        await pilot.press("d")
        await at_once(pilot, f"not{BACK}w")
        await auntil(lambda: app.screen.query_one("#card-reason", Input).value)

        assert "now" == app.screen.query_one("#card-reason", Input).value
