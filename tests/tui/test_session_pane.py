"""Going into a session: a transcript with a box to write in, or its terminal; and coming back."""

from typing import cast

import pytest
from textual.pilot import Pilot

from kasmon.errors import SessionEndedError
from kasmon.host.rpc.frames import Blur, ClipboardCopy, Focus, SendKeys, SubscriptionEnd, Unwatch, Watch
from kasmon.model.commands import Mode, Prompt, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import MessageWritten
from kasmon.model.permission import SessionId
from kasmon.tui.app import Kasmon
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.preview import Preview
from kasmon.tui.session_pane import add_message
from kasmon.tui.terminal.view import FocusView
from kasmon.tui.transcript.prompt_box import PromptBox
from kasmon.tui.transcript.view import SessionView
from tests.support.bus.sample_machines import there
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import NOW, ended, fleet, idle, session, working
from tests.support.sample_transcripts import MAKE, long_talk, talk
from tests.support.tui.fake_gateway import app_of, called, fleet_update, gateway_of, text_of
from tests.support.wait import auntil

README = SessionId("readme")
TALK = {"readme": talk()}


async def told(pilot: Pilot[None], session: str = "readme") -> None:
    """Until the transcript is on the screen."""
    await settled(pilot)
    known = app_of(pilot).session_pane.transcripts.of(SessionId(session))
    await auntil(lambda: known.cursor, what="the transcript")
    view = app_of(pilot).session_pane.widget
    assert isinstance(view, SessionView)
    await auntil(lambda: view.screen_of_events._frame is None)
    await pilot.pause()


async def test_the_preview_shows_the_end_of_the_transcript() -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)

        assert "requests to use Bash: rm -rf build && make release" in text_of(pilot.app)


async def test_text_that_is_being_written_is_shown() -> None:
    app = kasmon(fleet(working("readme")), transcripts=TALK, written={"readme": "While I think of it"})
    async with app.run_test(size=(120, 40)) as pilot:
        await told(pilot)

        assert "While I think of it" in text_of(app)


async def test_the_next_transcript_opens_at_its_end_in_the_same_widget() -> None:
    """A new widget would lay out the whole screen several times, for which a new state would wait."""
    app = kasmon(fleet(idle("readme"), idle("schema")), transcripts={"readme": long_talk(2000), "schema": talk()})
    async with app.run_test(size=(120, 40)) as pilot:
        await told(pilot)
        shown = app.session_pane.widget
        app.session_pane.scroll(-3)
        await pilot.press("down")
        await told(pilot, "schema")

        assert shown is app.session_pane.widget
        assert "requests to use Bash: rm -rf build && make release" in text_of(app)
        assert "Step 19" not in text_of(app)

        await pilot.press("up", "enter", *"abc", "escape", "down")
        await told(pilot, "schema")
        await pilot.press("enter")
        await pilot.pause()

        assert "Write to schema" in text_of(app)


async def test_enter_opens_a_structured_session_at_its_end_and_scrolled_up_the_box_keeps_the_keyboard() -> None:
    app = kasmon(fleet(idle("readme")), transcripts={"readme": long_talk(2000)})
    async with app.run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter")
        await pilot.pause()

        assert "Step 1999 is done." in text_of(app)
        assert "state ▾" not in text_of(app)
        await pilot.press(*"abc", "pageup", "pageup")
        await pilot.pause()

        assert "Step 1999 is done." not in text_of(app)
        assert app.query_one(PromptBox).has_focus
        assert "abc" == app.query_one(PromptBox).text


async def test_enter_sends_and_clears_the_box() -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter", *"tidy up", "enter")
        await pilot.pause()

        assert [called(Operations.send_prompt, README, Prompt(text="tidy up"))] == gateway_of(pilot.app).calls
        assert "" == pilot.app.query_one(PromptBox).text


@pytest.mark.parametrize("key", ["shift+enter", "alt+enter", "ctrl+j"])
async def test_a_prompt_may_have_any_number_of_lines(key: str) -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter", "a", key, "b", "enter")
        await pilot.pause()

        assert [called(Operations.send_prompt, README, Prompt(text="a\nb"))] == gateway_of(pilot.app).calls


async def test_blanks_are_not_sent() -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter", "space", "enter")
        await pilot.pause()

        assert [] == gateway_of(pilot.app).calls


async def test_a_refused_prompt_is_in_the_box_again() -> None:
    app = kasmon(fleet(idle("readme")), transcripts=TALK)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await told(pilot)
        gateway_of(pilot.app).refusing = SessionEndedError("readme")
        await pilot.press("enter", *"tidy up", "enter")
        await pilot.pause()
        await pilot.pause()

        assert "tidy up" == app.query_one(PromptBox).text
        assert "has ended" in text_of(app)


async def test_an_unsent_draft_is_restored() -> None:
    async with run_app(kasmon(fleet(idle("a"), idle("readme")))) as pilot:
        await pilot.press("enter", *"half a", "escape", "j", "enter", *"other", "escape", "k", "enter")
        await pilot.pause()

        assert "half a" == pilot.app.query_one(PromptBox).text


async def test_esc_leaves_and_the_list_has_the_focus() -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter", "escape")
        await pilot.pause()

        assert app_of(pilot).main_view.table.has_focus
        assert not pilot.app.query(PromptBox)
        assert "state ▾" in text_of(pilot.app)


async def test_ctrl_c_in_the_box_ends_the_turn() -> None:
    async with kasmon(fleet(working("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        await pilot.press("enter", "ctrl+c")
        await pilot.pause()

        assert [called(Operations.interrupt, README)] == gateway_of(pilot.app).calls


async def test_the_receipt_of_a_prompt_is_shown_above_the_box_and_nowhere_else() -> None:
    async with run_app(kasmon(fleet(idle("readme"))), notifications=True) as pilot:
        gateway_of(pilot.app).word = "readme: sent"
        await pilot.press("enter", *"Go on", "enter")
        await auntil(lambda: gateway_of(pilot.app).calls)
        await pilot.pause()
        assert "readme: sent" not in text_of(pilot.app)

        await pilot.press("escape", "m", *"Go on", "enter")
        await auntil(lambda: "readme: sent" in text_of(pilot.app))


async def test_attaching_to_a_structured_session_gives_the_reason_of_the_refusal() -> None:
    async with run_app(kasmon(fleet(idle("readme"))), notifications=True) as pilot:
        await pilot.press("o")
        await pilot.pause()

        assert "Cannot attach to 'readme': a structured session" in " ".join(text_of(pilot.app).split())


async def test_the_steps_of_a_receipt_are_shown() -> None:
    states = ReceiptState
    ways = [(states.FINISHED, "first", ""), (states.QUEUED, "second", ""), (states.REFUSED, "third", "busy")]
    receipts = [
        Receipt(id=ReceiptId(f"readme-{text}"), session=README, state=state, text=text, reason=why)
        for state, text, why in ways
    ]
    async with run_app(kasmon(fleet(working("readme", receipts=tuple(receipts))))) as pilot:
        assert "queued  second" in text_of(pilot.app)
        assert "refused  third" not in text_of(pilot.app)

        await pilot.press("enter")
        await pilot.pause()
        assert "refused  third  busy" in text_of(pilot.app)


async def test_new_events_are_shown_without_a_key() -> None:
    async with kasmon(fleet(idle("readme")), transcripts=TALK).run_test(size=(120, 40)) as pilot:
        await told(pilot)
        view = app_of(pilot).session_pane.widget
        assert isinstance(view, SessionView)
        view.transcript.add(MessageWritten(at=NOW, text="One more thing."))
        view.screen_of_events.draw_soon()
        await auntil(lambda: "One more thing." in text_of(pilot.app))


async def test_a_terminal_session_shows_its_rows() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE})):
        assert "sphinx-build -b html docs build/html" in text_of(app)


async def test_enter_gives_a_terminal_the_keyboard_and_f12_and_the_leave_key_take_it_back() -> None:
    app = kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE})
    async with run_app(app) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert "Ctrl+] or F12 list" in text_of(app)
        await pilot.press("f12")
        await pilot.pause()
        told_host = gateway_of(pilot.app).link.told
        assert app.main_view.table.has_focus
        assert [] == [wish for wish in told_host if isinstance(wish, SendKeys)]

        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("q", "x")
        await pilot.press("ctrl+right_square_bracket")
        await pilot.pause()

        assert b"qx" == b"".join(wish.data for wish in told_host if isinstance(wish, SendKeys))
        assert any(isinstance(wish, Focus) and wish.columns > 100 for wish in told_host)
        assert any(isinstance(wish, Blur) for wish in told_host)
        assert app.main_view.table.has_focus


async def test_another_leave_key_can_be_chosen() -> None:
    app = kasmon(
        fleet(working("docs", mode=Mode.TMUX)),
        panes={"docs": MAKE},
        settings=DashboardSettings(keys={"leave_focus": "ctrl+g"}),
    )
    async with run_app(app) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("ctrl+g")
        await pilot.pause()

        assert app.main_view.table.has_focus


async def test_selecting_another_session_stops_watching_the_terminal() -> None:
    app = kasmon(fleet(working("docs", mode=Mode.TMUX), working("other", ago=10)), panes={"docs": MAKE})
    async with run_app(app) as pilot:
        await pilot.press("j")
        await pilot.pause()

        watching = [wish for wish in gateway_of(pilot.app).link.told if isinstance(wish, Watch | Unwatch)]
        assert isinstance(watching[-1], Unwatch)


async def test_a_terminal_whose_host_is_gone_reports_that_when_focused() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE})) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        gateway_of(pilot.app).push(SubscriptionEnd(session=SessionId("docs"), why="host process died"))
        await pilot.pause()

        assert "host process died" in text_of(app)


async def test_without_tmux_the_preview_reports_it_missing() -> None:
    app = kasmon(fleet(working("docs", mode=Mode.TMUX)))
    gateway_of(app).has_tmux = False
    async with run_app(app):
        assert "Live terminals require tmux" in text_of(app)


async def test_pushes_for_another_session_are_not_shown() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE})) as pilot:
        gateway_of(pilot.app).push(SubscriptionEnd(session=SessionId("someone-else"), why="gone"))
        await pilot.pause()

        view = app.session_pane.widget
        assert isinstance(view, FocusView)
        assert "" == view.bar.lost


async def test_a_session_removed_while_it_is_open_returns_the_focus() -> None:
    async with run_app(kasmon(fleet(idle("a"), idle("readme")))) as pilot:
        await pilot.press("enter", *"half")
        app_of(pilot)._show_update(fleet_update(fleet(idle("readme"))))
        await pilot.pause()

        assert not app_of(pilot).main_view.has_class("-inside")
        assert app_of(pilot).main_view.table.has_focus


async def test_a_restart_keeps_the_draft() -> None:
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        await pilot.press("enter", *"half")
        app_of(pilot)._show_update(fleet_update(fleet(idle("readme", generation=2))))
        await pilot.pause()

        assert "half" == pilot.app.query_one(PromptBox).text
        assert pilot.app.query_one(PromptBox).has_focus


async def test_the_help_opens_by_a_key_also_in_the_box() -> None:
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        await pilot.press("enter", "question_mark", "f1")
        await pilot.pause()
        assert "In the prompt box" in text_of(pilot.app)

        await pilot.press("escape")
        await pilot.pause()
        assert "?" == pilot.app.query_one(PromptBox).text


async def test_a_program_may_write_to_the_clipboard_only_where_the_config_allows_it() -> None:
    app = kasmon(fleet(working("docs", mode=Mode.TMUX, agent="claude")), panes={"docs": MAKE})
    async with run_app(app, (120, 30), notifications=True) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        gateway_of(pilot.app).push(ClipboardCopy(session=SessionId("docs"), text="one\ntwo"))
        await auntil(lambda: "[agents.claude] clipboard = true allows it" in text_of(app))
        assert [] == gateway_of(pilot.app).passed(Operations.copy_text, "text")
        assert "" == app.clipboard

        gateway_of(pilot.app).kept.put_nowait(DashboardSettings(clipboard=("claude",)))
        await auntil(lambda: app.settings.clipboard)
        gateway_of(pilot.app).push(ClipboardCopy(session=SessionId("docs"), text="one\ntwo"))
        await auntil(lambda: "Copied for docs (2 lines)" in text_of(app))
        assert ["one\ntwo"] == gateway_of(pilot.app).passed(Operations.copy_text, "text")
        assert "one\ntwo" == app.clipboard

        gateway_of(pilot.app).push(ClipboardCopy(session=SessionId("docs"), text=None))
        await auntil(lambda: "nothing was copied." in text_of(app))
        assert "one\ntwo" == app.clipboard


async def test_a_program_that_ended_in_focus_is_reported_as_ended() -> None:
    async with run_app(app := kasmon(fleet(working("docs", mode=Mode.TMUX)), panes={"docs": MAKE}), (120, 30)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        gateway_of(pilot.app).fleets.put_nowait(fleet(ended("docs", mode=Mode.TMUX)))

        await auntil(lambda: "program ended; keys are ignored" in text_of(app))


async def test_a_terminal_left_before_it_opened_does_not_take_the_focus() -> None:
    """As when its session is forgotten in another dashboard, or the next one that asks is gone to at once."""
    app = kasmon(fleet(session("shell", mode=Mode.TMUX)), panes={"shell": ("$",)})
    async with app.run_test(size=(120, 40)) as pilot:
        await auntil(lambda: app.has_fleet)
        app.session_pane.enter(SessionId("shell"))
        view = app.session_pane.terminal
        assert view is not None
        assert not view.is_mounted
        app.session_pane.leave()
        await auntil(lambda: view.is_mounted)
        await settled(pilot)

        assert not view.is_live
        assert app.list_has_keys


async def test_a_terminal_entered_before_it_opened_has_the_focus_once_it_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a busy machine: a refresh may come before it is mounted."""
    app = kasmon(fleet(session("shell", mode=Mode.TMUX)), panes={"shell": ("$",)})
    async with app.run_test(size=(120, 40)) as pilot:
        await auntil(lambda: app.has_fleet)
        monkeypatch.setattr(app, "call_after_refresh", lambda call, *more: call(*more))
        app.session_pane.enter(SessionId("shell"))
        view = app.session_pane.terminal
        assert view is not None
        assert not view.is_mounted
        assert not view.is_live  # else it would open no tap, then or later
        await settled(pilot)

        assert view.is_live


async def test_a_preview_that_is_built_while_the_dashboard_quits_crashes_nothing() -> None:
    """A person quits right after the cursor has moved."""
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        preview = pilot.app.screen.query_one(Preview)
        shown, preview.session = preview.session, None
        preview.session = shown
        pilot.app.exit()
        preview.build()

        assert not cast(Kasmon, pilot.app).crash


def test_only_the_command_of_kasmons_own_tmux_gets_a_message() -> None:
    """What attaches on another machine, or to a tmux of the user's, is another program, or another server."""
    argv = ("ssh", "-t", "box", "kasmon attach docs")

    assert argv == add_message(argv, there("box", idle("docs")))
    assert argv == add_message(argv, idle("docs", adopted="work:1"))
    assert argv == add_message(argv, idle("docs", mode=Mode.SDK))
    assert "display-message" in add_message(argv, idle("docs", mode=Mode.TMUX))
