"""The line at the bottom: the keys that matter where the keyboard is, for what the cursor is on."""

import pytest
from textual.pilot import Pilot

from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.dashboard_scenes import kasmon, settled
from tests.support.sample_fleet import crew, ended, fleet, idle, session, working
from tests.support.tui.fake_gateway import fleet_update, text_of

TWO = fleet(idle("readme"), working("docs", mode=Mode.TMUX))


def footer(pilot: Pilot[None]) -> list[str]:
    """What is offered, as key and word."""
    return [offer for offer in text_of(pilot.app).splitlines()[-1].strip().split("   ") if offer]


async def opened(pilot: Pilot[None], *pressed: str) -> None:
    await settled(pilot)
    await pilot.press(*pressed)
    await settled(pilot)


@pytest.mark.parametrize(
    ("shown", "offered"),
    [
        (idle("x"), {"m message", "x stop"}),
        (idle("x", mode=Mode.TMUX), {"m message", "x stop", "o attach"}),
        (ended("x", 1), {"R restart", "X remove"}),
        (session("x", SessionState.LOST, mode=Mode.TMUX), {"R restart", "X remove"}),
    ],
    ids=["structured", "in a terminal", "crashed", "lost"],
)
async def test_actions_for_the_selected_session_are_offered(shown: Session, offered: set[str]) -> None:
    async with kasmon(fleet(shown)).run_test(size=(120, 40)) as pilot:
        await opened(pilot)

        changing = {"m message", "x stop", "o attach", "R restart", "X remove"}
        assert offered == changing & set(footer(pilot))


async def test_the_offer_depends_on_the_cursor_and_the_session() -> None:
    async with (app := kasmon(TWO)).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        assert "o attach" not in footer(pilot)
        await opened(pilot, "j")
        assert "o attach" in footer(pilot)

        app._show_update(fleet_update(fleet(idle("readme"), ended("docs", 1, mode=Mode.TMUX))))
        await settled(pilot)
        assert "R restart" in footer(pilot)


@pytest.mark.parametrize("shown", [fleet(), crew()], ids=["empty", "crew"])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
async def test_the_keys_for_help_and_quit_are_always_shown(shown: Fleet, width: int) -> None:
    async with kasmon(shown).run_test(size=(width, 24)) as pilot:
        await opened(pilot)

        assert ["? help", "q quit"] == footer(pilot)[-2:]


async def test_an_empty_list_offers_no_action_for_a_session() -> None:
    async with kasmon(fleet()).run_test(size=(120, 40)) as pilot:
        await opened(pilot)

        assert ["n new", "? help", "q quit"] == footer(pilot)


async def test_a_filter_without_matches_can_still_be_changed() -> None:
    async with kasmon(TWO).run_test(size=(120, 40)) as pilot:
        await opened(pilot, "slash", *"nobody", "enter")

        assert ["n new", "/ filter", "? help", "q quit"] == footer(pilot)


async def test_while_the_filter_is_typed_its_own_keys_are_offered() -> None:
    async with kasmon(TWO).run_test(size=(120, 40)) as pilot:
        await opened(pilot, "slash", "d")
        assert ["⏎ apply", "esc clear", "F1 help"] == footer(pilot)

        await opened(pilot, "enter")
        assert "⏎ open" in footer(pilot)


async def test_in_a_prompt_box_only_keys_that_are_not_text_are_offered() -> None:
    async with kasmon(TWO).run_test(size=(120, 40)) as pilot:
        await opened(pilot, "enter")

        assert {"⏎ send", "ctrl+j new line", "ctrl+c interrupt"} <= set(footer(pilot))
        assert ["esc leave", "F1 help"] == footer(pilot)[-2:]
        assert not {"? help", "i requests"} & set(footer(pilot))
