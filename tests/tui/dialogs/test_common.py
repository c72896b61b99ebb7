"""The dialogs: errors in place, nothing typed lost, nothing done by accident."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from textual import events
from textual.command import Command, CommandList
from textual.pilot import Pilot

from kasmon.config.profile import ProfileOffer
from kasmon.errors import LaunchError, NameTakenError, PromptBoxError, SessionEndedError, UnavailableError, UsageError
from kasmon.model.commands import Mode, Prompt, Receipt, ReceiptId, ReceiptState, TerminalLogIn
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.worktrees.file_listing import folders_like
from kasmon.tui.app import Kasmon
from kasmon.tui.dialogs.common import ConfirmDialog
from kasmon.tui.dialogs.fields import ChoiceField
from kasmon.tui.dialogs.new_session import NewSessionDialog
from kasmon.tui.dialogs.prompt import ANYWAY, PromptDialog
from kasmon.tui.error_text import sentence
from kasmon.tui.gateway import protocol
from kasmon.tui.gateway.operations import Operations
from kasmon.tui.help import HelpDialog
from kasmon.tui.keymap import ACTIONS, Keys
from kasmon.tui.palette import KasmonCommands
from kasmon.tui.permissions.card.screen import CardScreen
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.theme import LIGHT
from kasmon.tui.transcript.prompt_box import PromptBox, TextBox
from tests.model.review.test_file_changes import DIFF
from tests.support.dashboard_scenes import kasmon, run_app, settled
from tests.support.sample_fleet import StillClock, asking, crew, ended, fleet, idle, session, working
from tests.support.sample_sandboxes import interpreters
from tests.support.sample_transcripts import talk
from tests.support.tui.fake_gateway import Call, FakeGateway, app_of, called, created, fleet_update, gateway_of, text_of
from tests.support.wait import auntil

README = SessionId("readme")


def calls(pilot: Pilot[None]) -> list[Call]:
    return gateway_of(pilot.app).calls


async def dialog(pilot: Pilot[None], key: str) -> None:
    """Open a dialog by its key, and look at it for a second."""
    await settled(pilot)
    await pilot.press(key)
    await auntil(lambda: len(pilot.app.screen_stack) == 2, what="the dialog")
    await pilot.pause()
    cast(StillClock, app_of(pilot).clock).ticked += 1.0


async def closed(pilot: Pilot[None]) -> None:
    await auntil(lambda: len(pilot.app.screen_stack) == 1, what="the dialog's end")
    await pilot.pause()


async def test_the_reason_why_the_folder_config_does_not_apply_is_shown_below_it() -> None:
    app = kasmon(fleet(idle("readme")), settings=protocol.DashboardSettings(workdir="/home/you"))
    gateway = gateway_of(app)
    gateway.notices = {"/home/you": "It is [b]not[/b] trusted.", "/other": "Nor is this."}
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        shown = cast(NewSessionDialog, pilot.app.screen)
        await auntil(lambda: "It is [b]not[/b] trusted." in text_of(app))

        shown.folder.box.value = "/other"
        shown.folder.box.focus()
        await pilot.press("tab")
        await auntil(lambda: "Nor is this." in text_of(app))
        assert "trusted" not in text_of(app)

        shown.machine.value = "elsewhere"  # where nothing of it is looked at
        shown.machine.focus()
        await pilot.press("tab")
        await auntil(lambda: "Nor is this." not in text_of(app))


async def test_a_new_session_is_created_with_the_entered_values() -> None:
    app = kasmon(fleet(idle("readme")), settings=protocol.DashboardSettings(workdir="/home/you"))
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        await pilot.press(*"fix-auth", "tab", "right", "right", "tab", "right", "tab", "tab", *"Fix it", "enter")
        await closed(pilot)

        expected = created("fix-auth", "scripted", mode=Mode.TMUX, workdir="/home/you", prompt="Fix it")
        assert [expected] == calls(pilot)


async def test_an_account_is_chosen_if_the_config_has_some_for_the_agent() -> None:
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        gateway_of(pilot.app).offered = (
            ProfileOffer(name="claude", modes=(Mode.TMUX,), accounts=("work", "home")),
            ProfileOffer(name="shell", modes=(Mode.TMUX,)),
        )
        await dialog(pilot, "n")
        shown = cast(NewSessionDialog, pilot.app.screen)
        await auntil(lambda: shown.account_field.display, what="the accounts")
        assert ("its own log-in", "work", "home") == shown.account.options
        shown.agent.field.focus()
        await pilot.press("right")
        await auntil(lambda: not shown.account_field.display, what="an agent without accounts")
        await pilot.press("left")
        shown.machine.value = "elsewhere"
        await auntil(lambda: not shown.account_field.display, what="another machine, whose log-ins are not known")
        shown.machine.value = ""
        await auntil(lambda: shown.account_field.display, what="the accounts")
        shown.account.focus()
        await pilot.press("right", "enter")
        await closed(pilot)

        assert "account='work'" in str(calls(pilot))


async def test_only_usable_agents_are_offered_and_the_others_are_named() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        text = text_of(pilot.app)

        assert "claude   shell   scripted" in text
        assert "not installed: gemini" in text
        assert "terminal   structured" in text


async def test_an_empty_name_becomes_a_free_one_of_the_folder_and_the_agent() -> None:
    app = kasmon(fleet(idle("my-shop-shell")), settings=protocol.DashboardSettings(workdir="/home/you/my shop"))
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        assert "my-shop-claude" in text_of(app), "it is shown before it is taken"
        await pilot.press("tab", "right", "enter")
        await closed(pilot)

        assert "my-shop-shell-2" == calls(pilot)[0][1]["new"].name


async def test_rarely_used_fields_are_folded_and_show_their_values() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        assert "▸  machine: local" in text_of(pilot.app)
        assert "Machine" not in text_of(pilot.app)
        await pilot.press(*["tab"] * 5, "enter", *"box")
        await pilot.pause()
        assert "Machine" in text_of(pilot.app)
        await pilot.press("shift+tab", "enter")
        await pilot.pause()

        assert "▸  machine: box (ssh)" in text_of(pilot.app)
        assert [] == calls(pilot)


async def test_tab_completes_a_folder_and_then_moves_on() -> None:
    app = kasmon(fleet(idle("readme")), settings=protocol.DashboardSettings(workdir="/home/you"))
    async with app.run_test(size=(120, 40)) as pilot:
        gateway_of(pilot.app).folders_here = ("/srv/app/", "/srv/www/")
        await dialog(pilot, "n")
        await pilot.press(*["tab"] * 3, "ctrl+u", *"/srv/a")
        await auntil(lambda: "/srv/app/" in text_of(app), what="what completes it")
        await pilot.press("tab", "tab", *"Look", "enter")
        await closed(pilot)

        expected = created("app-claude", "claude", mode=Mode.TMUX, workdir="/srv/app", prompt="Look")
        assert [expected] == calls(pilot)


def test_folders_are_found_by_their_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("app", "api", ".hidden", "evil\x1b[2J", "www"):
        (tmp_path / name).mkdir()
    (tmp_path / "apple").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert ["~/api/", "~/app/"] == folders_like("~/a")
    assert [f"{tmp_path}/.hidden/"] == folders_like(f"{tmp_path}/.h")
    assert [f"{tmp_path}/{name}/" for name in ("api", "app", "www")] == folders_like(f"{tmp_path}/")
    assert [] == folders_like(f"{tmp_path}/nowhere/x") == folders_like("/\0/")


async def test_the_folders_of_the_last_sessions_are_offered_and_chosen_by_arrows() -> None:
    old = idle("old", workdir="/srv/old", created_at=1.0)
    elsewhere = idle("far", workdir="/far", machine="another")
    app = kasmon(
        fleet(old, idle("new", workdir="/srv/new"), elsewhere), settings=protocol.DashboardSettings(workdir="/home/you")
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        assert "↓ recent: /srv/new, /srv/old" in text_of(app)
        await pilot.press("x", *["tab"] * 3, "down", "down", "enter")
        await closed(pilot)

        assert "/srv/old" == calls(pilot)[0][1]["new"].workdir


async def test_a_name_that_is_taken_is_said_before_anything_is_tried_until_it_is_being_mended() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        await pilot.press(*"readme", "enter")
        await pilot.pause()

        assert "The name readme is already in use." in text_of(pilot.app)
        assert [] == calls(pilot)
        await pilot.press("f")
        await pilot.pause()

        assert "already in use" not in text_of(pilot.app)


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
async def test_in_a_small_window_the_keys_stay_visible_with_any_error(size: tuple[int, int]) -> None:
    """Also while a request waits."""
    async with kasmon(fleet(asking("fix-auth"))).run_test(size=size) as pilot:
        await dialog(pilot, "n")
        await pilot.press(*"fix-auth", "enter")
        await pilot.pause()

        for words in ("The name fix-auth is already in use.", "Choose another name.", "start", "1 pending request"):
            assert words in text_of(pilot.app)


async def test_a_long_reason_is_shown_whole() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(80, 24)) as pilot:
        await dialog(pilot, "n")
        why = f"cannot start 'x': {'there is a reason and ' * 6}that is all."
        gateway_of(pilot.app).refusing = LaunchError(why, hint="Mend it.")
        await pilot.press("x", "enter")
        await auntil(lambda: "Mend it." in text_of(pilot.app))

        assert "that is all." in text_of(pilot.app)


async def test_more_agents_than_fit_a_line_are_offered_on_two() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        names = [f"agent-{number}" for number in range(8)]
        cast(NewSessionDialog, pilot.app.screen).offer_agents(
            [ProfileOffer(name=name, modes=(Mode.TMUX,)) for name in names]
        )
        await pilot.pause()
        assert all(name in text_of(pilot.app) for name in names)

        row = next(y for y, line in enumerate(text_of(pilot.app).splitlines()) if "agent-7" in line)
        await pilot.click(offset=(text_of(pilot.app).splitlines()[row].index("agent-7"), row))
        assert "agent-7" == cast(NewSessionDialog, pilot.app.screen).agent.value


async def on_machine(pilot: Pilot[None], machine: str, *more: str) -> None:
    """Fill in a new session on *machine*; the keys *more* follow."""
    await dialog(pilot, "n")
    await pilot.press("x", *["tab"] * 5, "enter", *machine, *more, "enter")


async def test_a_session_on_another_machine_is_a_terminal_in_a_folder_of_that_machine() -> None:
    app = kasmon(fleet(idle("readme")), settings=protocol.DashboardSettings(workdir="/home/you"))
    async with app.run_test(size=(120, 40)) as pilot:
        await on_machine(pilot, "me@box")
        await closed(pilot)

        assert [created("x", "claude@me@box", mode=Mode.TMUX, workdir="", prompt="")] == calls(pilot)


async def test_an_entered_folder_is_one_of_the_other_machine() -> None:
    app = kasmon(fleet(idle("readme")), settings=protocol.DashboardSettings(workdir="/home/you"))
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        await pilot.press("x", "tab", "tab", "tab", "ctrl+u", *"~/src", "tab", "tab", "enter", *"box", "enter")
        await closed(pilot)

        assert "~/src" == calls(pilot)[0][1]["new"].workdir


async def test_an_invalid_machine_is_reported_at_its_field() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await on_machine(pilot, "-oProxyCommand=x")
        await pilot.pause()

        assert "'-oProxyCommand=x' is not a valid host name" in text_of(pilot.app)
        assert pilot.app.focused is pilot.app.screen.query_one("#machine")
        assert [] == calls(pilot)


async def test_the_machines_in_the_ssh_config_are_offered_and_right_completes_one() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        gateway_of(pilot.app).hosts = ("build-box", "gpu")
        await dialog(pilot, "n")
        await pilot.press("x", *["tab"] * 5, "enter")
        await auntil(lambda: "local; ssh hosts: build-box, gpu" in text_of(pilot.app))
        await pilot.press("b")
        await auntil(lambda: "build-box" in text_of(pilot.app))
        await pilot.press("right", "enter")
        await closed(pilot)

        assert "claude@build-box" == calls(pilot)[0][1]["new"].agent


async def test_enter_starts_from_a_choice_too() -> None:
    """Of the agent, the mode and the sandbox."""
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        for tabs in (1, 2, 3):
            await dialog(pilot, "n")
            await pilot.press(*"docs", *["tab"] * tabs, "enter")
            await closed(pilot)

            assert ["docs"] * tabs == [arguments["new"].name for _, arguments in calls(pilot)]


async def hurried(pilot: Pilot[None]) -> None:
    """Say "start" before the agents are known."""
    gateway_of(pilot.app).knows.clear()
    await dialog(pilot, "n")
    await pilot.press(*"docs", "enter")
    await auntil(lambda: "Starts as soon as the installed agents" in text_of(pilot.app))


async def test_enter_before_the_agents_are_loaded_starts_once_they_are() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await hurried(pilot)
        assert [] == calls(pilot)
        gateway_of(pilot.app).knows.set()
        await closed(pilot)

        assert ["docs"] == [new.name for new in gateway_of(pilot.app).passed(Operations.create_session, "new")]


@pytest.mark.parametrize("key", ["x", "escape"])
async def test_another_key_before_that_cancels_the_start(key: str) -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await hurried(pilot)
        shown = cast(NewSessionDialog, pilot.app.screen)
        await pilot.press(key)
        await pilot.pause()
        assert "Starts as soon" not in text_of(pilot.app)
        gateway_of(pilot.app).knows.set()
        await auntil(lambda: shown.agent.offers is not None or not shown.is_open)
        await pilot.pause()

        assert [] == calls(pilot)


async def test_if_no_agents_can_be_loaded_the_dialog_gives_the_reason_and_an_empty_list_does_not() -> None:
    app = kasmon(fleet())
    gateway = gateway_of(app)
    gateway.offering = UnavailableError("a system call failed '/etc/kasmon': Input/output error.", hint="Look there.")
    async with app.run_test(size=(120, 40)) as pilot:
        await hurried(pilot)
        gateway.knows.set()
        await auntil(lambda: "A system call failed '/etc/kasmon'" in text_of(app))
        await pilot.press("enter")

        assert "Starts as soon" not in text_of(app)
        assert not app.crash


async def test_the_cursor_moves_to_the_started_session() -> None:
    async with kasmon(fleet(asking("fix-auth"), idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        await pilot.press(*"docs", "enter")
        await closed(pilot)
        app_of(pilot)._show_update(fleet_update(fleet(asking("fix-auth"), idle("readme"), working("docs"))))
        await pilot.pause()

        assert "docs" == app_of(pilot).main_view.table.selected


async def test_a_refusal_is_shown_in_place_and_keeps_the_entered_text() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "n")
        gateway_of(pilot.app).refusing = LaunchError(
            "cannot start 'claude': it is not signed in.", hint="Run `claude` once."
        )
        await pilot.press(*"fix-auth", "tab", "tab", "tab", "tab", *"Do it", "enter")
        await auntil(lambda: calls(pilot))
        await pilot.pause()
        await pilot.pause()

        assert "it is not signed in." in text_of(pilot.app)
        assert "Run `claude` once." in text_of(pilot.app)
        assert "fix-auth" == pilot.app.screen.query_one("#name", LineInput).value
        assert "Do it" == pilot.app.screen.query_one("#first-prompt", TextBox).text

        gateway_of(pilot.app).refusing = None
        await pilot.press("enter")
        await closed(pilot)
        assert 2 == len(calls(pilot))


async def test_a_message_goes_to_the_selected_session() -> None:
    async with kasmon(fleet(idle("readme"), working("docs"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "m")
        assert "Prompt readme" in text_of(pilot.app)
        await pilot.press(*"Go on", "enter")
        await closed(pilot)

        assert [called(Operations.send_prompt, README, Prompt(text="Go on"))] == calls(pilot)


async def test_a_message_can_wait_or_interrupt() -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "m")
        await pilot.press(*"Go on", "tab", "right", "shift+tab", "enter")
        await closed(pilot)

        assert [called(Operations.send_prompt, README, Prompt(text="Go on", when="idle"))] == calls(pilot)


async def test_a_prompt_without_a_visible_box_is_typed_only_if_the_user_chooses_that() -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "m")
        assert ANYWAY not in text_of(pilot.app)
        gateway_of(pilot.app).refusing = PromptBoxError("readme", "its screen shows no input box", is_unseen=True)
        await pilot.press(*"Go on", "enter")
        message = cast(PromptDialog, pilot.app.screen)
        await auntil(lambda: ANYWAY in message.when.options and not message.busy)
        await pilot.pause()
        assert "choose" in text_of(pilot.app)
        gateway_of(pilot.app).refusing = None
        await pilot.press("tab", "right", "right", "right", "shift+tab", "enter")
        await closed(pilot)

        said = gateway_of(pilot.app).passed(Operations.send_prompt, "prompt")
        assert [Prompt(text="Go on"), Prompt(text="Go on", anyway=True)] == said


def with_receipt(shown: Session, state: ReceiptState, reason: str = "", text: str = "Go on") -> Session:
    """The session with one more receipt than before."""
    number = ReceiptId(f"{shown.id}-r{len(shown.receipts) + 1}")
    receipt = Receipt(id=number, session=shown.id, state=state, text=text, reason=reason)
    return msgspec.structs.replace(shown, receipts=(*shown.receipts, receipt))


async def confirmed(pilot: Pilot[None], text: str) -> None:
    """Write *text* for all recipients, and confirm them."""
    await pilot.press(*text, "enter")
    await auntil(lambda: isinstance(pilot.app.screen, ConfirmDialog), what="the question")
    await pilot.pause()
    cast(StillClock, app_of(pilot).clock).forward(1)
    await pilot.press("y")


async def test_a_broadcast_is_sent_to_the_sessions_in_the_list_and_names_them() -> None:
    shown = fleet(working("a", agent="codex"), working("b"), idle("c", agent="codex"), ended("d", agent="codex"))
    async with run_app(kasmon(shown)) as pilot:
        await pilot.press("slash", *"agent:codex", "enter")
        await dialog(pilot, "M")
        assert "Prompt 2 agents" in text_of(pilot.app)
        assert "c, a" in text_of(pilot.app)
        await confirmed(pilot, "Go on")
        await auntil(lambda: len(calls(pilot)) == 2)

        assert ["c", "a"] == gateway_of(pilot.app).passed(Operations.send_prompt, "session")


async def test_each_sessions_result_of_a_broadcast_is_shown_as_it_arrives() -> None:
    old = with_receipt(idle("a"), ReceiptState.FINISHED)
    async with kasmon(fleet(old, idle("b"), working("c"))).run_test(size=(120, 40), notifications=True) as pilot:
        await dialog(pilot, "M")
        gateway_of(pilot.app).word = "it: sent"
        await confirmed(pilot, "Go on")
        await auntil(lambda: "3 sending" in text_of(pilot.app))
        sent = (
            with_receipt(old, ReceiptState.STARTED),
            with_receipt(idle("b"), ReceiptState.LOST, "its pane died"),
            with_receipt(with_receipt(working("c"), ReceiptState.QUEUED), ReceiptState.STARTED, text="another's"),
        )
        gateway_of(pilot.app).fleets.put_nowait(fleet(*sent))
        await auntil(lambda: "1 running · 1 lost · 1 queued" in text_of(pilot.app))
        rows = text_of(pilot.app).splitlines()
        assert any(all(word in row for word in ("b ", "lost", "its pane died")) for row in rows)
        assert "it: sent" not in text_of(pilot.app)
        await pilot.press("escape")
        await closed(pilot)


async def test_a_repeated_broadcast_is_sent_only_to_sessions_that_refused_it() -> None:
    async with kasmon(fleet(idle("a"), idle("b"), idle("c"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "M")
        gateway_of(pilot.app).refusing_for = {"b": SessionEndedError("b")}
        await confirmed(pilot, "Go on")
        await auntil(lambda: "retry 1 failed" in text_of(pilot.app))
        assert SessionEndedError("b").message in text_of(pilot.app)
        calls(pilot).clear()
        gateway_of(pilot.app).refusing_for = {}
        await pilot.press("enter")
        await auntil(lambda: "retry" not in text_of(pilot.app))

        assert ["b"] == gateway_of(pilot.app).passed(Operations.send_prompt, "session")


async def test_a_refused_broadcast_can_be_edited_for_these_sessions_and_keeps_the_text() -> None:
    async with kasmon(fleet(idle("a"), idle("b"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "M")
        gateway_of(pilot.app).refusing_for = {"b": SessionEndedError("b")}
        await confirmed(pilot, "Go on")
        await auntil(lambda: "edit for failed" in text_of(pilot.app))
        calls(pilot).clear()
        await pilot.press("e")
        await auntil(lambda: "Prompt b" in text_of(pilot.app))
        await pilot.press("!", "enter")
        await auntil(lambda: calls(pilot))

        assert [called(Operations.send_prompt, SessionId("b"), Prompt(text="Go on!"))] == calls(pilot)


async def test_a_broadcast_to_several_is_confirmed_with_the_list_of_its_recipients() -> None:
    async with kasmon(fleet(idle("a", agent="codex"), idle("b"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "M")
        await pilot.press(*"Go on", "enter")
        await auntil(lambda: "Send to 2 agents?" in text_of(pilot.app))
        assert all(row in text_of(pilot.app) for row in ("a  codex  idle", "b  claude  idle"))
        cast(StillClock, app_of(pilot).clock).forward(1)
        await pilot.press("enter", "n")
        await auntil(lambda: isinstance(pilot.app.screen, PromptDialog))
        assert [] == calls(pilot)
        assert "Go on" in text_of(pilot.app)


async def test_a_broadcast_is_not_sent_to_shells_and_names_them() -> None:
    shells = [idle(name, agent=agent, mode=Mode.TMUX) for name, agent in (("sh", "shell"), ("py", "python3"))]
    async with kasmon(fleet(idle("a"), idle("b"), *shells)).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "M")
        assert "Prompt 2 agents" in text_of(pilot.app)
        assert "not sent to (no agents): py, sh" in text_of(pilot.app)
        await confirmed(pilot, "Go on")
        await auntil(lambda: len(calls(pilot)) == 2)

        assert {"a", "b"} == set(gateway_of(pilot.app).passed(Operations.send_prompt, "session"))


async def test_a_list_of_shells_alone_cannot_get_a_broadcast() -> None:
    shown = fleet(idle("sh", agent="shell", mode=Mode.TMUX))
    async with run_app(kasmon(shown), notifications=True) as pilot:
        await pilot.press("M")
        await auntil(lambda: "No agent in the list is running" in text_of(pilot.app))


async def test_the_palette_shows_why_a_session_is_in_its_state() -> None:
    async with run_app(kasmon(fleet(working("readme"))), notifications=True) as pilot:
        await pilot.press("ctrl+p", *"explain", "enter")
        await auntil(lambda: "Why readme is working" in text_of(pilot.app))
        assert "working, says its title" in text_of(pilot.app)
        assert "screen    says idle; disagrees, lower priority" in text_of(pilot.app)
        await pilot.press("escape")
        await closed(pilot)

        gateway_of(pilot.app).refusing = SessionEndedError("readme")
        app_of(pilot).key_dispatcher.run(Keys.EXPLAIN)
        await auntil(lambda: sentence(SessionEndedError("readme").message) in text_of(pilot.app))


async def test_a_stop_is_confirmed_and_only_y_means_yes() -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        for key in ("enter", "escape", "n", "x", "space"):
            if len(pilot.app.screen_stack) == 1:
                await dialog(pilot, "x")
            assert "Stop readme? It is asked to exit" in text_of(pilot.app), key
            assert "in the middle of a turn" in text_of(pilot.app), key
            await pilot.press(key)
            await pilot.pause()

            assert [] == calls(pilot), key


async def test_y_stops() -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "x")
        await pilot.press("y")
        await closed(pilot)

        assert [called(Operations.stop, README)] == calls(pilot)


async def test_an_interrupt_needs_no_confirmation() -> None:
    async with run_app(kasmon(fleet(working("readme")))) as pilot:
        await pilot.press("c")
        await pilot.pause()

        assert [called(Operations.interrupt, README)] == calls(pilot)


async def test_an_ended_session_is_removed_after_a_confirmation() -> None:
    async with kasmon(fleet(ended("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "X")
        assert "The event log and the working directory are kept" in text_of(pilot.app)
        await pilot.press("y")
        await closed(pilot)

        assert [called(Operations.remove, README)] == calls(pilot)


@pytest.mark.parametrize(
    ("key", "call"),
    [
        ("y", called(Operations.remove, README)),
        ("a", called(Operations.remove, README, deletes_conversation=True)),
    ],
)
async def test_the_agents_own_conversation_is_deleted_only_on_request(key: str, call: Call) -> None:
    session = ended("readme", resume_id="talk-1", abilities=("deletes",))
    async with kasmon(fleet(session)).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "X")
        assert "Its agent keeps its own conversation, unless you have it deleted" in text_of(pilot.app)
        await pilot.press(key)
        await closed(pilot)

        assert [call] == calls(pilot)


async def test_the_agents_login_is_shown_whole_and_run_after_a_confirmation() -> None:
    log_in = TerminalLogIn(title="In a [b]terminal", argv=("odd", "auth", "log in"), variables={"ODD": "1"})
    async with kasmon(fleet(ended("readme", log_in=log_in))).run_test(size=(120, 40)) as pilot:
        assert "log in" in text_of(pilot.app).splitlines()[-1]
        await dialog(pilot, "A")
        assert "In a [b]terminal: run this in a terminal?" in text_of(pilot.app)
        assert "ODD=1 odd auth 'log in'" in text_of(pilot.app)
        assert [] == calls(pilot)
        await pilot.press("y")
        await closed(pilot)
        await auntil(lambda: calls(pilot), what="the log-in")

        assert [called(Operations.begin_log_in, README, log_in)] == calls(pilot)


async def test_a_session_that_needs_no_login_reports_that() -> None:
    async with run_app(kasmon(fleet(ended("readme"))), notifications=True) as pilot:
        await pilot.press("A")
        await pilot.pause()

        assert "requires no log-in" in text_of(pilot.app)
        assert [] == calls(pilot)


@pytest.mark.parametrize("key", ["X", "R"])
async def test_a_running_session_is_neither_removed_nor_restarted(key: str) -> None:
    async with run_app(kasmon(fleet(working("readme"))), notifications=True) as pilot:
        await pilot.press(key)
        await pilot.pause()

        assert "readme is running. Stop it first." in text_of(pilot.app)
        assert [] == calls(pilot)


@pytest.mark.parametrize("gone", [ended("readme", 1), session("readme", SessionState.LOST)], ids=["ended", "lost"])
async def test_an_ended_session_is_restarted(gone: Session) -> None:
    async with run_app(kasmon(fleet(gone))) as pilot:
        await pilot.press("R")
        await pilot.pause()

        assert [called(Operations.restart, README)] == calls(pilot)


@pytest.mark.parametrize(
    ("mode", "to", "words"),
    [(Mode.SDK, Mode.TMUX, "to a terminal"), (Mode.TMUX, Mode.SDK, "to structured mode")],
    ids=["structured", "terminal"],
)
async def test_a_session_moves_to_the_other_mode_after_a_confirmation(mode: Mode, to: Mode, words: str) -> None:
    session = idle("readme", mode=mode, permission_mode="default")
    async with kasmon(fleet(session)).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "V")
        assert words in text_of(pilot.app)
        assert [] == calls(pilot)
        await pilot.press("y")
        await pilot.pause()

        assert [called(Operations.move, README, to)] == calls(pilot)


async def test_a_session_moves_to_another_account_if_the_config_has_some_for_its_agent() -> None:
    session = idle("readme", permission_mode="default", account="work")
    async with run_app(kasmon(fleet(session))) as pilot:
        gateway_of(pilot.app).offered = (ProfileOffer(name="claude", modes=(Mode.TMUX,), accounts=("work", "home")),)
        await dialog(pilot, "V")
        choice = pilot.app.screen.query_one("#move-to", ChoiceField)
        assert ("a terminal", "its own log-in", "account home") == choice.options
        assert "Move readme to a terminal?" in text_of(pilot.app)
        await pilot.press("right", "right")
        assert "its conversation is resumed with that log-in" in text_of(pilot.app)
        await pilot.press("enter")
        await closed(pilot)
        assert [called(Operations.move, README, Mode.SDK, account="home")] == calls(pilot)

        await dialog(pilot, "V")
        await pilot.press("enter")
        await closed(pilot)
        assert called(Operations.move, README, Mode.TMUX) == calls(pilot)[-1]


async def test_the_move_dialog_warns_if_the_permission_mode_cannot_be_kept() -> None:
    session = idle("readme", program="codex", permission_mode="untrusted")
    async with kasmon(fleet(session)).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "V")
        assert "Its requests may change: codex uses the approval policy 'untrusted'" in text_of(pilot.app)
        await pilot.press("y")
        await pilot.pause()

        assert [called(Operations.move, README, Mode.TMUX, changes_permissions=True)] == calls(pilot)


@pytest.mark.parametrize("key", ["m", "c", "x"])
async def test_an_ended_session_reports_that_it_does_not_run(key: str) -> None:
    async with run_app(kasmon(fleet(ended("readme"))), notifications=True) as pilot:
        await pilot.press(key)
        await pilot.pause()

        assert "readme is not running; R restarts it." in text_of(pilot.app)
        assert [] == calls(pilot)


async def test_a_rename_keeps_the_dialog_open_for_a_taken_name() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "r")
        gateway_of(pilot.app).refusing = NameTakenError("readme2", "abc")
        await pilot.press("end", "2", "enter")
        await auntil(lambda: calls(pilot))
        await pilot.pause()
        await pilot.pause()

        assert [called(Operations.rename, README, "readme2")] == calls(pilot)
        assert "already exists: abc" in text_of(pilot.app)
        assert "readme2" == pilot.app.screen.query_one("#new-name", LineInput).value


async def test_tags_are_edited_on_one_line_and_kept_when_one_is_refused() -> None:
    async with kasmon(fleet(idle("readme", tags=("api", "docs")), idle("x", tags=("web",)))).run_test() as pilot:
        await dialog(pilot, "T")
        assert "In use: api, docs, web." in text_of(pilot.app)
        gateway_of(pilot.app).refusing = UsageError("'-x' is not a tag.")
        await pilot.press("end", *("backspace",) * 4, "u", "r", "comma", "minus", "x", "enter")
        await auntil(lambda: calls(pilot))
        await settled(pilot)

        assert [called(Operations.set_tags, README, ("api", "docs"), ["api", "ur", "-x"])] == calls(pilot)
        assert "'-x' is not a tag." in text_of(pilot.app)
        assert "api ur,-x" == pilot.app.screen.query_one("#tags", LineInput).value


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quitting_needs_no_confirmation_and_prints_how_many_agents_run(key: str) -> None:
    async with run_app(kasmon(fleet(working("a"), idle("b"), ended("c")))) as pilot:
        await pilot.press(key)
        await pilot.pause()

        assert not pilot.app.is_running
        assert "2 agents are still running. Run `kasmon` to open the dashboard again." == app_of(pilot).farewell


async def test_quitting_without_a_running_agent_prints_nothing() -> None:
    async with run_app(kasmon(fleet(ended("c")))) as pilot:
        await pilot.press("q")
        await pilot.pause()

        assert not pilot.app.is_running
        assert "" == app_of(pilot).farewell


async def test_quitting_a_demo_reports_that_its_agents_end() -> None:
    async with kasmon(fleet(working("a"))).run_test(size=(120, 40)) as pilot:
        app_of(pilot).agents_go_on = False
        await dialog(pilot, "q")

        assert "Quit the demo? Its agents stop too." in text_of(pilot.app)


async def test_a_key_shows_the_last_change_of_a_session() -> None:
    async with run_app(kasmon(fleet(idle("readme")), transcripts={"readme": talk()})) as pilot:
        told = app_of(pilot).session_pane.transcripts.of(README)
        await auntil(lambda: told.cursor)
        await dialog(pilot, "D")

        assert "Last change by readme" in text_of(pilot.app)
        assert "44 +    since = Column" in text_of(pilot.app)


async def test_a_session_without_a_change_reports_that() -> None:
    async with run_app(kasmon(fleet(idle("readme"))), notifications=True) as pilot:
        await pilot.press("D")
        await pilot.pause()

        assert "No changes by readme were recorded." in text_of(pilot.app)


async def test_a_theme_is_previewed_at_once_and_saved_by_enter() -> None:
    async with kasmon(crew()).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "comma")
        await pilot.press("down")
        await pilot.pause()
        shown = pilot.app.theme
        assert "rose-pine-moon" != shown

        await pilot.press("enter")
        await closed(pilot)
        assert [called(Operations.save_theme, shown, "ui.theme")] == calls(pilot)
        assert shown == pilot.app.theme


async def test_on_a_light_terminal_the_theme_for_light_terminals_is_saved() -> None:
    async with (app := kasmon(crew())).run_test(size=(120, 40)) as pilot:
        app.user_settings.use_background(is_light=True)
        await dialog(pilot, "comma")
        assert "This terminal is light" in text_of(app)
        await pilot.press("enter")
        await closed(pilot)
        assert [called(Operations.save_theme, LIGHT, "ui.light_theme")] == calls(pilot)


async def test_esc_restores_the_old_theme() -> None:
    async with kasmon(crew()).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "comma")
        await pilot.press("down", "escape")
        await closed(pilot)

        assert "rose-pine-moon" == pilot.app.theme
        assert [] == calls(pilot)


async def clicked(pilot: Pilot[None], words: str) -> None:
    """Click on *words*, in the lowest row that has them."""
    rows = text_of(pilot.app).splitlines()
    x, y = next((row.index(words), y) for y, row in reversed(list(enumerate(rows))) if words in row)
    await pilot.click(offset=(x + 1, y))


async def test_the_keys_at_the_foot_of_a_dialog_can_be_clicked() -> None:
    feet = {"m": "esc close", "x": "esc cancel", "question_mark": "esc close", "comma": "esc revert"}
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        for key, words in feet.items():
            await dialog(pilot, key)
            await clicked(pilot, words)
            await closed(pilot)


@pytest.mark.parametrize("by_mouse", [True, False])
async def test_a_message_can_be_sent_from_the_choice_of_its_time(by_mouse: bool) -> None:
    async with kasmon(fleet(working("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "m")
        await pilot.press(*"Go on", "tab", "right")
        await (clicked(pilot, "⏎ send") if by_mouse else pilot.press("enter"))
        await closed(pilot)

        assert [called(Operations.send_prompt, SessionId("readme"), Prompt(text="Go on", when="idle"))] == calls(pilot)


async def test_the_settings_show_the_path_of_the_config_and_its_errors() -> None:
    settings = protocol.DashboardSettings(
        config_path="/home/you/.config/kasmon/config.toml", problems=("config.toml:3: no such key",)
    )
    async with kasmon(crew(), settings=settings).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "comma")

        assert "/home/you/.config/kasmon/config.toml" in text_of(pilot.app)
        assert "config.toml:3: no such key" in text_of(pilot.app)


async def test_the_palette_finds_every_action_and_every_session() -> None:
    async with run_app(kasmon(fleet(idle("readme"), asking("fix-auth")))) as pilot:
        commands = KasmonCommands(pilot.app.screen)

        hits = [hit async for hit in commands.search("fix-auth")]
        assert ["fix-auth"] == [hit.text for hit in hits if hit.score > 0.9][:1]
        discovered = {hit.text or "" async for hit in commands.discover()}
        assert {"New", "Message", "Stop", "Settings", "readme", "fix-auth"} <= discovered
        assert {row.label.casefold() for row in ACTIONS if row.is_in_palette} <= {
            text.casefold() for text in discovered
        }
        assert not {"Once", "Always", "Deny"} & discovered


async def test_the_view_does_not_change_under_the_palette() -> None:
    async with run_app(kasmon(fleet(idle("readme"), asking("fix-auth"))), (80, 24)) as pilot:
        main_view = app_of(pilot).main_view
        before = main_view.preview.region
        await pilot.press("ctrl+p")
        await auntil(lambda: app_of(pilot).is_palette_open)
        await settled(pilot)

        assert before == main_view.preview.region
        assert "waits" not in text_of(pilot.app)


async def test_without_colours_the_selection_in_the_palette_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with run_app(kasmon(fleet(idle("readme"))), (80, 24)) as pilot:
        await pilot.press("ctrl+p")
        await auntil(lambda: "Open" in text_of(pilot.app))
        await pilot.pause()
        strips = pilot.app.screen._compositor.render_strips()
        reversed_words = {
            segment.text.strip() for strip in strips for segment in strip if segment.style and segment.style.reverse
        }

        assert any(word.startswith("Next") for word in reversed_words)


async def test_the_palette_finds_actions_by_their_description() -> None:
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        hits = [hit async for hit in KasmonCommands(pilot.app.screen).search("review pending")]

        assert "Requests" == max(hits, key=lambda hit: hit.score).text


async def offered(pilot: Pilot[None], words: str) -> None:
    """Until the palette has found all that fits what was typed, and *words* are what Enter takes."""
    palette = pilot.app.screen

    def first() -> str:
        found = palette.query_one(CommandList)
        searching = [worker for worker in palette.workers if worker.node is palette and not worker.is_finished]
        return "" if searching or found.highlighted is None else str(cast(Command, found.highlighted_option).hit.text)

    await auntil(lambda: words == first(), what=f"{words} in the palette")
    await pilot.pause()


async def test_a_list_action_in_the_palette_leaves_the_session_first() -> None:
    """What was written there is kept."""
    async with run_app(kasmon(fleet(idle("readme")))) as pilot:
        await pilot.press("enter", *"half", "ctrl+p", *"rename")
        await offered(pilot, "Rename")
        await pilot.press("enter")
        await auntil(lambda: "New name" in text_of(pilot.app))
        assert not app_of(pilot).main_view.has_class("-inside")

        await pilot.press("escape")
        await closed(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert "half" == pilot.app.query_one(PromptBox).text


async def test_moving_between_sessions_keeps_the_drafts() -> None:
    async with run_app(kasmon(fleet(idle("readme"), idle("zoo")))) as pilot:
        await pilot.press("enter", *"half")
        app_of(pilot).session_pane.enter(SessionId("zoo"))
        await pilot.pause()
        assert "" == pilot.app.query_one(PromptBox).text

        app_of(pilot).session_pane.enter(README)
        await pilot.pause()
        assert "half" == pilot.app.query_one(PromptBox).text


async def test_the_palette_runs_the_chosen_action() -> None:
    async with run_app(kasmon(fleet(idle("readme"), idle("zoo")))) as pilot:
        await pilot.press("ctrl+p", *"zoo")
        await offered(pilot, "zoo")
        await pilot.press("enter")
        await auntil(lambda: app_of(pilot).main_view.has_class("-inside"))

        entered = app_of(pilot).main_view.preview.session
        assert entered is not None
        assert "zoo" == entered.id


async def test_the_palette_does_not_interpret_markup() -> None:
    lines = ("[@click=app.quit]a[/]", "[/foo]", "\\\\[", "[red]")
    async with run_app(kasmon(fleet(*(idle(f"readme-{number}", line) for number, line in enumerate(lines))))) as pilot:
        await pilot.press("ctrl+p", *"readme")
        await auntil(lambda: all(f"idle  {line}" in text_of(pilot.app) for line in lines))


async def test_ctrl_q_does_nothing() -> None:
    async with run_app(kasmon(crew())) as pilot:
        await pilot.press("ctrl+q")
        await pilot.pause()

        assert pilot.app.is_running
        assert 1 == len(pilot.app.screen_stack)


HELP: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), "question_mark", "Navigate"),
    ((), "f1", "Navigate"),
    (("t",), "f1", "In this dialog"),
    (("ctrl+p",), "f1", "Navigate"),
    (("slash",), "f1", "In the filter"),
    (("slash", *"web", "enter"), "question_mark", "Navigate"),
    (("m",), "f1", "In this dialog"),
    (("x",), "question_mark", "In this dialog"),
    (("comma",), "question_mark", "In this dialog"),
    (("i",), "question_mark", "In a request"),
    (("i",), "f1", "In a request"),
    (("I",), "f1", "In the inbox"),
    (("B",), "question_mark", "On the wave board"),
    (("B",), "f1", "On the wave board"),
    (("ctrl+f",), "f1", "In the search of all sessions"),
    (("j", "enter"), "f1", "In the prompt box"),
    (("j", "v"), "question_mark", "In a transcript or scrollback"),
)
"""What is pressed, then which key for the help, and what that begins with."""


async def test_the_help_opens_on_every_screen_with_the_keys_of_that_screen_first() -> None:
    async with run_app(kasmon(fleet(asking("web"), working("readme")))) as pilot:
        app = app_of(pilot)
        for opened, key, first in HELP:
            for each in opened:
                await pilot.press(each)
                await settled(pilot)
            screen = app.screen
            await pilot.press(key)
            await auntil(lambda: isinstance(app.screen, HelpDialog), what="the help")
            await pilot.pause()

            shown = cast(HelpDialog, app.screen).reader
            await auntil(lambda shown=shown: shown.rows, what="the keys")  # type: ignore[misc]
            assert first == shown.render_line(0).text.strip(), opened
            await pilot.press("f1")
            await auntil(lambda screen=screen: app.screen is screen, what="the screen below")  # type: ignore[misc]
            await pilot.press("escape")
            await settled(pilot)
            assert (1, False) == (len(app.screen_stack), app.main_view.focused_inside), opened


@pytest.mark.parametrize(
    ("shown", "key", "first"),
    [
        (interpreters("numbers"), "H", "On the sandbox screen"),
        (working("web"), "D", "In the review of changes"),
        (idle("shell", mode=Mode.TMUX), "v", "In a transcript or scrollback"),
    ],
)
async def test_over_the_view_of_a_session_the_help_has_those_keys_first(shown: Session, key: str, first: str) -> None:
    app = kasmon(fleet(shown))
    gateway_of(app).diffs = {"web": DIFF}
    async with app.run_test(size=(120, 40)) as pilot:
        await dialog(pilot, key)
        screen = app.screen
        await pilot.press("f1")
        await auntil(lambda: isinstance(app.screen, HelpDialog), what="the help")
        reader = cast(HelpDialog, app.screen).reader
        await auntil(lambda: reader.rows, what="the keys")

        assert first == reader.render_line(0).text.strip()
        await pilot.press("f1")
        await auntil(lambda: app.screen is screen, what="the screen below")


async def test_typing_in_the_help_searches_it() -> None:
    async with run_app(kasmon(fleet(working("readme")))) as pilot:
        await pilot.press("question_mark", *"restart")
        await auntil(lambda: "Restart ended" in text_of(pilot.app), what="what was found")

        assert "Restart ended session" in text_of(pilot.app)
        assert "Jump to next session that needs attention" not in text_of(pilot.app)


async def test_every_dialog_fits_a_small_window_and_closes_by_esc() -> None:
    async with kasmon(fleet(idle("readme"))).run_test(size=(80, 24)) as pilot:
        for key in ("n", "m", "x", "r", "comma", "question_mark"):
            await dialog(pilot, key)
            frame = pilot.app.screen.query_one(".dialog").region
            assert frame.bottom <= 24, key
            assert frame.right <= 80, key
            assert "esc" in text_of(pilot.app), key

            await pilot.press("escape")
            await closed(pilot)


# A dialog that is through, and what lies over it.


class SlowWorld(FakeGateway):
    """Runs an operation only once it may."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.goes = asyncio.Event()

    async def operations(self) -> Operations:
        operations = await super().operations()
        await self.goes.wait()
        return operations


async def test_a_dialog_that_is_done_closes_itself_and_no_other_one_above_it() -> None:
    """A person looks at a request meanwhile, and keys that are meant for its card must not go into the dialog."""
    gateway = SlowWorld(fleet(idle("readme"), asking("web")))
    async with (app := Kasmon(gateway=gateway, clock=StillClock())).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "r")
        await pilot.press("x", "enter")
        await pilot.press("f2")
        await auntil(lambda: isinstance(app.screen, CardScreen), what="the card")
        gateway.goes.set()
        await auntil(lambda: len(app.screen_stack) == 2, what="the dialog's end")
        await pilot.pause()

        assert isinstance(app.screen, CardScreen)


async def test_a_dialog_that_is_closed_twice_closes_once() -> None:
    """As by an Enter that is held down."""
    async with kasmon(fleet(idle("readme"))).run_test(size=(120, 40)) as pilot:
        await dialog(pilot, "r")
        for _ in range(3):
            app_of(pilot).post_message(events.Key("enter", "\r"))
        await closed(pilot)
        await settled(pilot)

        assert not app_of(pilot).crash
