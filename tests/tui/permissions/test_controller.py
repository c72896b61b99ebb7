"""When a request comes before a person, and how it is said that requests wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
from textual.pilot import Pilot

from kasmon.errors import UnavailableError
from kasmon.model.commands import Answer
from kasmon.model.fleet import Fleet
from kasmon.model.permission import Decision, SessionId
from kasmon.tui.gateway.protocol import DashboardSettings
from kasmon.tui.plan_board.screen import PlanBoardScreen
from kasmon.tui.review.screen import ReviewScreen
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.transcript.prompt_box import PromptBox
from tests.model.review.test_file_changes import DIFF
from tests.support.bus.sample_machines import cut_off, there
from tests.support.dashboard_scenes import armed, kasmon, planned, run_app
from tests.support.sample_boards import RUNNING, board
from tests.support.sample_fleet import StillClock, asking, command, crew, fleet, idle, login, working
from tests.support.sample_search import WORDS, finds
from tests.support.tui.fake_gateway import app_of, fleet_update, gateway_of, text_of
from tests.support.wait import auntil

QUIET = fleet(working("docs"), idle("readme"))
QUIET_ALONE = fleet(working("docs"))
ASKS = fleet(working("docs"), asking("readme"))
POPUP = DashboardSettings(popup=True)


async def pass_time(pilot: Pilot[None], seconds: float) -> None:
    """Let the clock and the looks for rising requests go on."""
    app = app_of(pilot)
    cast(StillClock, app.clock).forward(seconds)
    app.permissions.consider()
    await pilot.pause()


async def show(pilot: Pilot[None], now: Fleet) -> None:
    app_of(pilot)._show_update(fleet_update(now))
    await pilot.pause()
    await pilot.pause()


async def test_if_the_config_allows_it_a_card_opens_by_itself_while_the_list_has_the_focus() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        cast(StillClock, app_of(pilot).clock).forward(5)
        await show(pilot, ASKS)

        await auntil(lambda: app_of(pilot).permissions.card, what="a card")


async def test_a_card_opens_for_a_request_from_before_the_config_allows_it() -> None:
    async with run_app(kasmon(ASKS)) as pilot:
        cast(StillClock, app_of(pilot).clock).forward(5)
        assert "1 pending request" in text_of(pilot.app)
        app_of(pilot).user_settings.adopt(POPUP)

        await auntil(lambda: app_of(pilot).permissions.card, what="a card")


async def test_by_default_no_card_opens_by_itself_and_a_banner_counts() -> None:
    async with run_app(kasmon(QUIET)) as pilot:
        await show(pilot, ASKS)
        await pass_time(pilot, 30)

        assert app_of(pilot).permissions.card is None
        assert "1 pending request  i review" in text_of(pilot.app)


async def test_the_key_opens_the_request_of_the_selected_session() -> None:
    """Not the oldest one, and nothing on the card says that it is another session's."""
    asks = fleet(
        asking("old", command("old", "ls", ago=900), ago=900), asking("young", command("young", "make", ago=5))
    )
    async with run_app(kasmon(asks)) as pilot:
        app_of(pilot).main_view.table.select(SessionId("young"))
        await pilot.press("i")
        card = await armed(pilot)

        assert "young" == card.request.session
        assert "another session" not in text_of(pilot.app)


async def test_inside_a_session_the_key_opens_that_sessions_request() -> None:
    asks = fleet(
        asking("old", command("old", "ls", ago=900), ago=900), asking("young", command("young", "make", ago=5))
    )
    async with run_app(kasmon(asks)) as pilot:
        app_of(pilot).session_pane.enter(SessionId("young"))
        await pilot.pause()
        await pilot.press("f2")
        card = await armed(pilot)

        assert "young" == card.request.session


async def test_if_the_selected_session_has_no_request_the_head_names_the_oldest_in_colour() -> None:
    asks = fleet(working("docs"), asking("young", command("young", "make", ago=5)), asking("old", ago=900))
    async with run_app(kasmon(asks)) as pilot:
        app = app_of(pilot)
        app.main_view.table.select(SessionId("docs"))
        await pilot.press("i")
        card = await armed(pilot)

        assert "old" == card.request.session
        await auntil(lambda: " another session   not docs" in text_of(app))
        mark = next(part for line in card.view.head.drawn for part in line.left if "another session" in part[0])
        assert app.look.style(mark[1]).bgcolor == app.look.style("warn.solid").bgcolor


async def test_in_a_filtered_list_the_key_opens_the_oldest_request_in_it() -> None:
    asks = fleet(asking("old", ago=900), asking("web-1", ago=60), working("web-2"))
    async with run_app(kasmon(asks)) as pilot:
        await pilot.press("slash", *"web", "enter")
        await auntil(lambda: app_of(pilot).list_has_keys)
        app_of(pilot).main_view.table.select(SessionId("web-2"))
        await pilot.press("i")
        card = await armed(pilot)

        assert "web-1" == card.request.session


async def filtered(pilot: Pilot[None], word: str) -> None:
    await pilot.press("slash", *word, "enter")
    await auntil(lambda: app_of(pilot).list_has_keys)


async def test_inside_a_session_that_the_filter_excludes_its_own_request_opens() -> None:
    hidden = asking("hid", command("hid", "make", ago=5), ago=5)
    async with run_app(kasmon(fleet(asking("web-1", ago=900), hidden, working("web-2")))) as pilot:
        await filtered(pilot, "web")
        app_of(pilot).session_pane.enter(SessionId("hid"))
        await pilot.pause()
        await pilot.press("f2")

        assert "hid" == (await armed(pilot)).request.session


@pytest.mark.parametrize("key", ["i", "I"])
async def test_a_request_outside_of_the_list_is_marked_in_the_head(key: str) -> None:
    async with run_app(kasmon(fleet(asking("old", ago=900), working("web-2")))) as pilot:
        await filtered(pilot, "zzz")
        await pilot.press(key)
        await armed(pilot)

        assert " not in the list " in text_of(pilot.app)


async def test_on_a_heading_every_request_is_another_sessions() -> None:
    async with run_app(kasmon(crew())) as pilot:
        await pilot.press("W")
        app_of(pilot).main_view.table.select_index(0)
        await pilot.pause()
        assert app_of(pilot).main_view.table.selected is None
        await pilot.press("i")
        await armed(pilot)

        assert " another session " in text_of(pilot.app)


async def test_the_list_of_all_requests_marks_those_of_other_sessions() -> None:
    asks = fleet(working("docs"), asking("young", command("young", "make", ago=5)), asking("old", ago=900))
    async with run_app(kasmon(asks), (160, 40)) as pilot:
        app_of(pilot).main_view.table.select(SessionId("docs"))
        await pilot.press("I")
        await armed(pilot)

        assert " another session   not docs" in text_of(pilot.app)


async def test_in_a_filtered_list_the_inbox_opens_at_the_oldest_request_in_it() -> None:
    asks = fleet(asking("old", ago=900), asking("web-1", ago=60), working("web-2"))
    async with run_app(kasmon(asks)) as pilot:
        await filtered(pilot, "web")
        app_of(pilot).main_view.table.select(SessionId("web-2"))
        await pilot.press("I")

        assert "web-1" == (await armed(pilot)).request.session


# Over another screen, whose session comes first


THREE = (
    asking("parser-W2-T4", plan="parser", ago=900),
    asking("parser-W2-T3", command("parser-W2-T3", "make", ago=5), plan="parser", ago=5),
    asking("row", command("row", "rm -rf /", ago=5000), ago=5000),
)


@asynccontextmanager
async def on_the_board(task: str) -> AsyncIterator[Pilot[None]]:
    """The board at *task*; the list below is at another session, which has the oldest request."""
    shown = fleet(*THREE)
    running = msgspec.structs.replace(board(RUNNING), sessions={str(session.id): session for session in THREE})
    app = planned(running, shown=shown)
    async with run_app(app, (160, 45)) as pilot:
        await auntil(lambda: app.plan_board.boards)
        app.main_view.table.select(SessionId("row"))
        await pilot.press("B")
        await auntil(lambda: isinstance(app.screen, PlanBoardScreen) and app.screen.is_mounted)
        await pilot.pause()
        screen = cast(PlanBoardScreen, app.screen)
        for _ in range(40):
            if screen.card is not None and screen.card.id == task:
                break
            await pilot.press("j")
            await pilot.pause()
        yield pilot


@pytest.mark.parametrize("key", ["i", "f2", "f4"])
async def test_on_the_board_the_key_opens_the_request_of_the_tasks_session(key: str) -> None:
    async with on_the_board("3") as pilot:
        await pilot.press(key)
        card = await armed(pilot)

        assert "parser-W2-T3" == card.request.session
        assert "another session" not in text_of(pilot.app)


async def test_the_request_of_the_task_stays_first_from_the_card_to_the_inbox() -> None:
    async with on_the_board("3") as pilot:
        await pilot.press("f2")
        await armed(pilot)
        await pilot.press("f4")
        await armed(pilot)

        assert "another session" not in text_of(pilot.app)


async def test_on_a_task_without_a_session_the_oldest_opens_as_another_sessions() -> None:
    async with on_the_board("6") as pilot:
        await pilot.press("f2")
        card = await armed(pilot)

        assert "row" == card.request.session
        assert " another session " in text_of(pilot.app)
        assert "not row" not in text_of(pilot.app)


@pytest.mark.parametrize("key", ["f2", "f4"])
async def test_in_the_search_the_key_opens_the_request_of_the_matchs_session(key: str) -> None:
    asks = fleet(asking("old", ago=900), asking("fix-auth", command("fix-auth", "make", ago=5), ago=5))
    app = kasmon(asks)
    world = gateway_of(app)
    world.finds, world.is_searchable = {WORDS: finds()}, True
    async with run_app(app) as pilot:
        app.main_view.table.select(SessionId("old"))
        await pilot.press("ctrl+f", *WORDS, "enter")
        await auntil(lambda: app.search.screen is not None and app.search.screen.chosen)
        await pilot.press(key)

        assert "fix-auth" == (await armed(pilot)).request.session


@pytest.mark.parametrize("key", ["f2", "f4"])
async def test_over_a_diff_the_key_opens_the_request_of_the_session_that_changed_the_files(key: str) -> None:
    app = kasmon(fleet(asking("old", ago=900), asking("young", command("young", "make", ago=5), ago=5)))
    gateway_of(app).diffs = {"young": DIFF}
    async with run_app(app) as pilot:
        app.main_view.table.select(SessionId("young"))
        await pilot.press("D")
        await auntil(lambda: isinstance(app.screen, ReviewScreen))
        app.main_view.table.select(SessionId("old"))
        await pilot.press(key)

        assert "young" == (await armed(pilot)).request.session


async def test_the_inbox_opens_at_the_selected_sessions_own_request() -> None:
    asks = fleet(
        asking("old", command("old", "ls", ago=900), ago=900), asking("young", command("young", "make", ago=5))
    )
    async with run_app(kasmon(asks)) as pilot:
        app_of(pilot).main_view.table.select(SessionId("young"))
        await pilot.press("I")
        card = await armed(pilot)

        assert "young" == card.request.session


async def test_no_card_opens_within_a_second_of_a_key() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        await pass_time(pilot, 5)
        await pilot.press("j")
        await show(pilot, ASKS)
        await pass_time(pilot, 0.9)
        assert app_of(pilot).permissions.card is None

        await pass_time(pilot, 0.2)
        assert app_of(pilot).permissions.card is not None


async def test_no_card_opens_within_a_second_of_the_start() -> None:
    async with run_app(kasmon(ASKS, settings=POPUP)) as pilot:
        await pass_time(pilot, 0.9)

        assert app_of(pilot).permissions.card is None


async def test_in_a_prompt_box_a_line_reports_it_and_the_typed_text_stays() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        await pilot.press("enter", *"tidy ")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)
        await pilot.press(*"up")
        assert app_of(pilot).permissions.card is None
        assert "1 pending request" in text_of(pilot.app)

        await pilot.press("f2")
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert "tidy up" == pilot.app.query_one(PromptBox).text
        assert pilot.app.query_one(PromptBox).has_focus


async def test_in_a_dialog_a_line_reports_it_and_the_typed_text_stays() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        await pilot.press("n")
        await auntil(lambda: pilot.app.screen.query("#name"))
        await pilot.press(*"fix")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)
        assert app_of(pilot).permissions.card is None
        assert "1 pending request" in text_of(pilot.app)

        await pilot.press("f2")
        await armed(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert "fix" == pilot.app.screen.query_one("#name", LineInput).value


async def test_while_the_filter_is_typed_no_card_opens() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        await pilot.press("slash", "r")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)

        assert app_of(pilot).permissions.card is None
        assert "1 pending request" in text_of(pilot.app)


async def test_in_a_focused_terminal_its_bar_counts_the_requests() -> None:
    app = kasmon(crew())
    async with run_app(app) as pilot:
        app.main_view.table.select(app.main_view.table.shown()[0].id)
        await pilot.press("enter")
        await pilot.pause()
        await pass_time(pilot, 30)

        assert app.permissions.card is None
        assert "5 pending requests" in text_of(app)


async def test_a_dismissed_request_does_not_open_again_and_stays_counted() -> None:
    async with run_app(kasmon(ASKS, settings=POPUP)) as pilot:
        await pass_time(pilot, 2)
        await pilot.press("escape")
        await pilot.pause()
        await pass_time(pilot, 30)
        await show(pilot, fleet(working("docs", "more"), asking("readme")))
        await pass_time(pilot, 30)

        assert app_of(pilot).permissions.card is None
        assert "1 pending request" in text_of(pilot.app)


async def test_a_dismissed_request_is_counted_again_as_soon_as_its_answer_failed() -> None:
    async with run_app(kasmon(ASKS)) as pilot:
        await pilot.press("i")
        request = (await armed(pilot)).request
        await pilot.press("escape")
        await pilot.pause()
        inbox, gateway = app_of(pilot).permissions, gateway_of(pilot.app)
        gateway.refusing = UnavailableError("the disk is full.")
        inbox.answer(request.session, Answer(request=request.id, digest=request.digest, decision=Decision.DENY))
        assert () == inbox.queue.waiting
        await pilot.pause()

        assert "1 pending request" in text_of(pilot.app)


async def test_a_request_during_the_palette_is_counted_or_opens_after_it() -> None:
    for settings in (DashboardSettings(), POPUP):
        async with run_app(kasmon(QUIET, settings=settings)) as pilot:
            await pilot.press("ctrl+p")
            await auntil(lambda: app_of(pilot).is_palette_open, what="the palette")
            await show(pilot, ASKS)
            await pilot.press("escape")
            await auntil(lambda: not app_of(pilot).is_palette_open, what="the list")
            await pass_time(pilot, 2)

            card = app_of(pilot).permissions.card
            assert settings.popup == (card is not None)
            assert card is not None or "1 pending request" in text_of(pilot.app)


async def test_a_window_that_was_too_small_for_a_moment_shows_requests_of_that_time() -> None:
    for settings in (DashboardSettings(), POPUP):
        async with run_app(kasmon(QUIET, settings=settings)) as pilot:
            cast(StillClock, app_of(pilot).clock).forward(5)
            await pilot.resize_terminal(30, 8)
            await show(pilot, ASKS)
            await pilot.resize_terminal(120, 40)
            await auntil(
                lambda pilot=pilot: app_of(pilot).permissions.card or "1 pending request" in text_of(pilot.app),  # type: ignore[misc]
                what="what was asked",
            )


async def test_a_new_request_opens_after_another_was_dismissed() -> None:
    async with run_app(kasmon(ASKS, settings=POPUP)) as pilot:
        await pass_time(pilot, 2)
        await pilot.press("escape")
        await show(pilot, fleet(asking("docs", command("docs", "make", ago=1)), asking("readme")))
        await pass_time(pilot, 2)

        card = app_of(pilot).permissions.card
        assert card is not None
        assert "docs" == card.request.session


async def test_a_request_that_kasmon_cannot_answer_opens_no_card() -> None:
    async with run_app(kasmon(fleet(asking("gem", login("gem"))), settings=POPUP)) as pilot:
        await pass_time(pilot, 30)

        assert app_of(pilot).permissions.card is None
        assert "1 pending request" in text_of(pilot.app)


async def test_i_reports_that_no_request_is_open() -> None:
    async with run_app(kasmon(QUIET), notifications=True) as pilot:
        await pilot.press("i")
        await pilot.pause()

        assert "No pending requests." in text_of(pilot.app)


async def test_after_leaving_a_session_an_open_request_is_shown() -> None:
    async with run_app(kasmon(QUIET, settings=POPUP)) as pilot:
        await pilot.press("enter")
        await show(pilot, ASKS)
        await pilot.press("escape")
        await pilot.pause()
        await pass_time(pilot, 0.5)
        assert app_of(pilot).permissions.card is None

        await pass_time(pilot, 0.6)
        assert app_of(pilot).permissions.card is not None


async def test_no_card_opens_before_the_secrets_are_known() -> None:
    app = kasmon(ASKS, settings=POPUP)
    gateway = gateway_of(app)
    gateway.holding_cards = True
    async with run_app(app) as pilot:
        await pass_time(pilot, 5)
        await pilot.press("i")
        await pilot.pause()
        assert app.permissions.card is None

        gateway.let_cards_go()
        await auntil(lambda: app.permissions._cards)
        await pass_time(pilot, 5)
        assert app.permissions.card is not None


@pytest.mark.parametrize(("key", "opens"), [("", True), ("j", False)])
async def test_a_card_requested_too_early_opens_once_it_can_unless_another_key_was_pressed(
    key: str, opens: bool
) -> None:
    app = kasmon(ASKS)
    gateway = gateway_of(app)
    gateway.holding_cards = True
    async with run_app(app) as pilot:
        await pilot.press("i")
        await pass_time(pilot, 1)
        if key:
            await pilot.press(key)
        gateway.let_cards_go()
        await auntil(lambda: app.permissions._cards)
        await pilot.pause()

        assert opens == (app.permissions.card is not None)


async def test_secrets_of_removed_sessions_are_dropped_once_no_text_of_them_is_visible() -> None:
    said = command("readme", "curl --user hunter2hunter2")
    app = kasmon(fleet(working("docs"), asking("readme", said)), secrets=["hunter2hunter2"])
    async with run_app(app) as pilot:
        await pilot.press("i")
        await auntil(lambda: app.permissions.card, what="the card")
        await show(pilot, QUIET_ALONE)
        assert "hunter2" not in text_of(app)
        assert app.permissions._cards

        app.permissions.close(())
        await auntil(lambda: not app.permissions._cards, what="no secrets any more")


async def test_the_line_names_a_key_that_counts_in_the_focused_view() -> None:
    """In the list, while the filter is written, in a dialog, and back in the list again."""
    async with run_app(kasmon(ASKS)) as pilot:
        await pilot.press("i")
        await armed(pilot)
        await pilot.press("escape")
        await auntil(lambda: "request  i review" in text_of(pilot.app))
        for pressed, key in (("slash", "F2"), ("enter", "i"), ("n", "F2"), ("escape", "i")):
            await pilot.press(pressed)
            await auntil(lambda key=key: f"request  {key} review" in text_of(pilot.app), what=f"{key} after {pressed}")  # type: ignore[misc]


async def test_a_full_disk_is_reported_in_a_line() -> None:
    async with run_app(kasmon(fleet(idle("x"), read_only="no space left on the device"))) as pilot:
        assert "kasmon cannot save anything: no space left on the device" in text_of(pilot.app)


async def test_a_click_on_the_line_opens_the_card() -> None:
    async with run_app(kasmon(fleet(asking("gem", login("gem"))))) as pilot:
        await pilot.click("#banner")
        await pilot.pause()

        assert app_of(pilot).permissions.card is not None


async def test_a_request_whose_machine_becomes_unreachable_is_neither_answered_nor_withdrawn_but_unknown() -> None:
    """In the card and in the inbox; when the machine is back, the request is pending again."""
    asked = there("lab", asking("train"))
    async with run_app(kasmon(fleet(asked))) as pilot:
        await pilot.press("i")
        await armed(pilot)
        assert "lab:train" in text_of(pilot.app)
        await show(pilot, fleet(cut_off("train")))
        shown = text_of(pilot.app)
        assert "lab is unreachable: it is unknown whether an answer arrived." in shown
        assert not any(word in shown for word in ("Allowed", "Withdrawn", "no longer pending"))

        await pilot.press("escape")
        await show(pilot, fleet(asked))
        await pilot.press("I")
        await armed(pilot)
        await show(pilot, fleet(cut_off("train")))
        assert "lab is unreachable: it is unknown whether" in text_of(pilot.app)
        await show(pilot, fleet(asked))
        assert [asked.requests[0].id] == [ask.id for ask in app_of(pilot).permissions.queue.waiting]
