"""A session of the user's own tmux, from the dashboard: chosen from a list, and let go again."""

from typing import Any, cast

import msgspec
import pytest

from kasmon.errors import NotFoundError
from kasmon.model.adoption.background_session import BackgroundSession
from kasmon.model.adoption.pane_candidate import AdoptablePane
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.tui.dialogs.adopt import ROWS
from kasmon.tui.gateway.operations import Operations
from tests.support.dashboard_scenes import kasmon, run_app
from tests.support.sample_fleet import StillClock, fleet, idle
from tests.support.tui.fake_gateway import called, gateway_of, text_of
from tests.support.wait import auntil


def pane(number: int, session: str, **fields: Any) -> AdoptablePane:
    base: dict[str, Any] = {
        "pane": f"%{number}", "session": session, "window_index": 0, "pane_index": 0, "window": "main",
        "title": "", "workdir": "/", "command": "bash", "pid": 1, "width": 90, "height": 30, "attached": 0,
        "is_active": True, "is_shown": True, "is_dead": False,
    }  # fmt: skip
    return AdoptablePane(**{**base, **fields})


async def test_a_pane_is_chosen_and_adopted_under_its_sessions_name() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).foreign = [pane(0, "work"), pane(3, "api", agent="claude", title="✳ fixing"), pane(4, "web")]
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "api:0.0" in text_of(app), what="the panes")
        assert "claude" in text_of(app)
        assert "⏎ adopt" in text_of(app)
        shown = [row for row in text_of(app).splitlines() if "90x30" in row]
        assert 1 == len({row.index(what) for row, what in zip(shown, ("bash", "claude", "bash"), strict=True)})
        assert "one more client" in text_of(app)
        await pilot.press("down", "enter")
        await auntil(lambda: len(app.screen_stack) == 1, what="the dialog's end")

        assert [called(Operations.adopt_pane, "%3", "api")] == gateway_of(app).calls


async def test_an_adopted_or_dead_pane_is_not_offered() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).foreign = [pane(0, "watched", adopted="abcdefgh"), pane(1, "gone", is_dead=True)]
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "no other pane to adopt" in text_of(app), what="the word")
        await pilot.press("enter")
        await pilot.pause()

        assert "watched:0.0" not in text_of(app)
        assert [] == gateway_of(app).calls


async def test_the_chosen_one_of_many_panes_is_visible() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).foreign = [pane(number, f"s{number:02}") for number in range(ROWS * 3)]
    async with run_app(app, (100, 40)) as pilot:
        await pilot.press("t")
        await auntil(lambda: "s00:0.0" in text_of(app), what="the panes")
        await pilot.press(*["j"] * 30)
        await pilot.pause()

        assert "s30:0.0" in text_of(app)


async def test_hostile_names_are_only_text() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).foreign = [pane(0, "[red]x[/]\x1b[2J", command="a", title="[@click=app.quit]t[/]")]
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "[red]x[/]" in text_of(app), what="the panes")

        assert "[@click=app.quit]t[/]" in text_of(app)


async def test_without_tmux_the_dialog_reports_it_and_stays_open() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).refusing = NotFoundError("no tmux server listens at '/x'.", hint="Pass its socket.")
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "No tmux server listens at '/x'." in text_of(app), what="the reason")

        assert "⏎ adopt" not in text_of(app), "there is nothing to watch"


@pytest.mark.parametrize("key", ["x", "X"])
async def test_an_adopted_session_is_never_stopped_and_can_be_released(key: str) -> None:
    mine = msgspec.structs.replace(idle("mine", mode=Mode.TMUX), adopted="work:0.0")
    async with run_app(app := kasmon(fleet(mine)), notifications=True) as pilot:
        assert "adopted" in text_of(app)
        await pilot.press(key)
        await pilot.pause()
        if key == "x":
            assert "runs in your own tmux. Stop it there" in " ".join(text_of(app).split())
            assert [] == gateway_of(app).calls
        else:
            assert "It keeps running in your own tmux" in text_of(app)
            cast(StillClock, app.clock).ticked += 5
            await pilot.press("y")
            await auntil(lambda: gateway_of(app).calls, what="the wish")
            assert [called(Operations.remove, SessionId("mine"))] == gateway_of(app).calls


async def test_a_background_session_of_claude_is_chosen_too() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).foreign = [pane(0, "work")]
    gateway_of(app).background = [
        BackgroundSession(id="86f99758", name="fix the build", state="blocked"),
        BackgroundSession(id="12345678", name="is shown", adopted="abcdefgh"),
    ]
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "fix the build" in text_of(app), what="the background session")
        assert "needs input" in text_of(app)
        assert "is shown" not in text_of(app)
        await pilot.press("down")
        await auntil(lambda: "closes only its screen" in text_of(app), what="the notice")
        await pilot.press("enter")
        await auntil(lambda: len(app.screen_stack) == 1, what="the dialog's end")

        assert [called(Operations.adopt_background, "86f99758")] == gateway_of(app).calls


async def test_the_cursor_moves_to_the_adopted_session_for_any_name() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).background = [BackgroundSession(id="86f99758", name="fix the build", state="working")]
    gateway_of(app).word = "fix the bu-2"
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "fix the build" in text_of(app), what="the background session")
        await pilot.press("enter")
        await auntil(lambda: len(app.screen_stack) == 1, what="the dialog's end")
        gateway_of(app).fleets.put_nowait(fleet(idle("readme"), idle("fix the bu-2")))
        await auntil(lambda: "fix the bu-2" in text_of(app), what="the session")

        selected = app.main_view.table.selected_session
        assert selected is not None
        assert "fix the bu-2" == selected.name


async def test_background_sessions_are_offered_where_there_is_no_tmux() -> None:
    app = kasmon(fleet(idle("readme")))
    gateway_of(app).refusing = NotFoundError("no tmux server listens at '/x'.", hint="Pass its socket.")
    gateway_of(app).background = [BackgroundSession(id="86f99758", name="fix the build", state="working")]
    async with run_app(app) as pilot:
        await pilot.press("t")
        await auntil(lambda: "fix the build" in text_of(app), what="the background session")

        assert "No tmux server" not in text_of(app)
