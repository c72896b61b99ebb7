"""When a request comes before a person, and how it is said that requests wait."""

from typing import cast

from textual.pilot import Pilot

from kasmon.model.fleet import Fleet
from kasmon.tui.app import Kasmon
from kasmon.tui.boxes import Line
from kasmon.tui.prompt import PromptBox
from tests.fleets import StillClock, asking, command, crew, fleet, idle, login, working
from tests.scenes import armed, kasmon, settled
from tests.tui.worlds import StillWorld, text_of
from tests.waiting import auntil

QUIET = fleet(working("docs"), idle("readme"))
QUIET_ALONE = fleet(working("docs"))
ASKS = fleet(working("docs"), asking("readme"))


def app_of(pilot: Pilot[None]) -> Kasmon:
    return cast(Kasmon, pilot.app)


async def pass_time(pilot: Pilot[None], seconds: float) -> None:
    """Let the clock and the looks for rising requests go on."""
    app = app_of(pilot)
    cast(StillClock, app.clock).forward(seconds)
    app.inbox.consider()
    await pilot.pause()


async def show(pilot: Pilot[None], now: Fleet) -> None:
    app_of(pilot)._take(now)
    await pilot.pause()
    await pilot.pause()


async def test_a_request_rises_by_itself_while_the_list_has_the_keyboard() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        cast(StillClock, app_of(pilot).clock).forward(5)
        await show(pilot, ASKS)

        await auntil(lambda: app_of(pilot).inbox.card, what="a card")


async def test_not_within_a_second_of_a_key() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 5)
        await pilot.press("j")
        await show(pilot, ASKS)
        await pass_time(pilot, 0.9)
        assert app_of(pilot).inbox.card is None

        await pass_time(pilot, 0.2)
        assert app_of(pilot).inbox.card is not None


async def test_not_within_a_second_of_the_start() -> None:
    async with kasmon(ASKS).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 0.9)

        assert app_of(pilot).inbox.card is None


async def test_in_a_prompt_box_a_line_says_it_and_nothing_typed_is_lost() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter", *"tidy ")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)
        await pilot.press(*"up")
        assert app_of(pilot).inbox.card is None
        assert "1 request waits" in text_of(pilot.app)

        await pilot.press("f2")
        await armed(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert "tidy up" == pilot.app.query_one(PromptBox).text
        assert pilot.app.query_one(PromptBox).has_focus


async def test_in_a_dialog_a_line_says_it_and_nothing_typed_is_lost() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("n")
        await auntil(lambda: pilot.app.screen.query("#name"))
        await pilot.press(*"fix")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)
        assert app_of(pilot).inbox.card is None
        assert "1 request waits" in text_of(pilot.app)

        await pilot.press("f2")
        await armed(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert "fix" == pilot.app.screen.query_one("#name", Line).value


async def test_while_the_filter_is_written_nothing_rises() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("slash", "r")
        await show(pilot, ASKS)
        await pass_time(pilot, 30)

        assert app_of(pilot).inbox.card is None
        assert "1 request waits" in text_of(pilot.app)


async def test_in_a_focused_terminal_its_bar_counts_the_requests() -> None:
    app = kasmon(crew())
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.desk.table.select(app.desk.table.shown()[0].id)
        await pilot.press("enter")
        await pilot.pause()
        await pass_time(pilot, 30)

        assert app.inbox.card is None
        assert "5 requests wait" in text_of(app)


async def test_a_request_put_off_does_not_rise_again_and_stays_counted() -> None:
    async with kasmon(ASKS).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 2)
        await pilot.press("escape")
        await pilot.pause()
        await pass_time(pilot, 30)
        await show(pilot, fleet(working("docs", "more"), asking("readme")))
        await pass_time(pilot, 30)

        assert app_of(pilot).inbox.card is None
        assert "1 request waits" in text_of(pilot.app)


async def test_a_new_request_rises_after_another_was_put_off() -> None:
    async with kasmon(ASKS).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 2)
        await pilot.press("escape")
        await show(pilot, fleet(asking("docs", command("docs", "make", ago=1)), asking("readme")))
        await pass_time(pilot, 2)

        card = app_of(pilot).inbox.card
        assert card is not None
        assert "docs" == card.request.session


async def test_what_kasmon_cannot_answer_does_not_rise() -> None:
    async with kasmon(fleet(asking("gem", login("gem")))).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 30)

        assert app_of(pilot).inbox.card is None
        assert "1 request waits" in text_of(pilot.app)


async def test_i_says_so_where_nothing_waits() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("i")
        await pilot.pause()

        assert "No request waits." in text_of(pilot.app)


async def test_after_leaving_a_session_a_waiting_request_rises() -> None:
    async with kasmon(QUIET).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await show(pilot, ASKS)
        await pilot.press("escape")
        await pilot.pause()
        await pass_time(pilot, 0.5)
        assert app_of(pilot).inbox.card is None

        await pass_time(pilot, 0.6)
        assert app_of(pilot).inbox.card is not None


async def test_no_card_before_it_is_known_what_must_not_stand_on_it() -> None:
    app = kasmon(ASKS)
    world = cast(StillWorld, app.world)
    world.holding_secrets = True
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pass_time(pilot, 5)
        await pilot.press("i")
        await pilot.pause()
        assert app.inbox.card is None

        world.let_secrets_go()
        await auntil(lambda: app.inbox._known_secrets)
        await pass_time(pilot, 5)
        assert app.inbox.card is not None


async def test_secrets_of_who_is_gone_are_forgotten_once_nothing_of_them_is_on_the_screen() -> None:
    said = command("readme", "curl --user hunter2hunter2")
    app = kasmon(fleet(working("docs"), asking("readme", said)), secrets=["hunter2hunter2"])
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("i")
        await auntil(lambda: app.inbox.card, what="the card")
        await show(pilot, QUIET_ALONE)
        assert "hunter2" not in text_of(app)
        assert app.inbox._known_secrets

        app.inbox.close(())
        await auntil(lambda: not app.inbox._known_secrets, what="no secrets any more")


async def test_secrets_that_come_when_their_session_is_gone_are_not_kept() -> None:
    app = kasmon(ASKS, secrets=["hunter2hunter2"])
    world = cast(StillWorld, app.world)
    world.holding_secrets = True
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await show(pilot, QUIET_ALONE)
        world.let_secrets_go()
        await app.workers.wait_for_complete([worker for worker in app.workers if worker.group == "secrets"])

        assert not app.inbox._known_secrets
        assert not app.inbox._projects


async def test_the_line_names_a_key_that_counts_where_the_keyboard_is() -> None:
    """In the list, while the filter is written, in a dialog, and back in the list again."""
    async with kasmon(ASKS).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("i")
        await armed(pilot)
        await pilot.press("escape")
        await auntil(lambda: "waits  i shows" in text_of(pilot.app))
        for pressed, key in (("slash", "F2"), ("enter", "i"), ("n", "F2"), ("escape", "i")):
            await pilot.press(pressed)
            await auntil(lambda key=key: f"waits  {key} shows" in text_of(pilot.app), what=f"{key} after {pressed}")  # type: ignore[misc]


async def test_a_full_disk_is_said_in_a_line() -> None:
    async with kasmon(fleet(idle("x"), read_only="no space left on the device")).run_test(size=(120, 40)) as pilot:
        await settled(pilot)

        assert "Nothing can be written down: no space left on the device" in text_of(pilot.app)


async def test_a_click_on_the_line_opens_the_card() -> None:
    async with kasmon(fleet(asking("gem", login("gem")))).run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.click("#banner")
        await pilot.pause()

        assert app_of(pilot).inbox.card is not None
