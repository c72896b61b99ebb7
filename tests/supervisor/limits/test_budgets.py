"""A budget that is used up lets no prompt be sent unless a person agrees, and ends nothing."""

import asyncio

import pytest

from kasmon.config import Config
from kasmon.config.schema import BudgetConfig
from kasmon.errors import RefusedError
from kasmon.model.events import NoticeRaised
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.budgets import find_warnings, held_plan, require_budget
from kasmon.supervisor.sessions.session_operations import send
from tests.support.tui.dashboard import Home
from tests.support.wait import until

pytestmark = pytest.mark.story


def configure(home: Home, per_session: str) -> None:
    home.paths.config.mkdir(mode=0o700, exist_ok=True)
    home.paths.config_file.write_text(f'[budget]\nper_session = "{per_session}"\n')


def test_no_prompt_is_sent_over_budget_without_consent_of_the_user(home: Home) -> None:
    session, other = home.start("spends", "usage 900 100 0 0 4.5"), home.start("other")
    until(lambda: home.session(session).tokens is not None and home.session(session).state is SessionState.IDLE)
    home.paths.config.mkdir(mode=0o700)
    home.paths.config_file.write_text('[budget]\nper_session = "1k"\n')

    with pytest.raises(RefusedError, match=r"budget of the session: 1.0k tokens of 1.0k tokens is used") as refusal:
        home.prompt(session, "say more")
    assert "--over-budget" in refusal.value.hint
    assert 1 == len(home.session(session).receipts), "nothing was sent"
    assert home.session(session).exists
    home.prompt(other, "say its own is free")
    asyncio.run(send(home.paths, home.session(session), "say agreed", over_budget=True))
    until(lambda: home.session(session).turns == 2)

    sessions = read_fleet(home.paths).sessions
    day = Config(budget=BudgetConfig(per_day="$5"))
    require_budget(day, home.session(other), sessions)
    home.paths.config_file.write_text('[budget]\nper_day = "$5"\n')
    (near,) = find_warnings(home.paths, home.session(other))
    assert near.startswith("the budget of the day: $4.5")
    assert "" == held_plan(day, [home.session(session)], sessions)
    over = Config(budget=BudgetConfig(per_plan="$4"))
    assert "the budget of the plan: $4.5" in held_plan(over, [home.session(session)], sessions)
    assert "" == held_plan(over, [home.session(other)], sessions)
    home.paths.config_file.write_text('[budget]\nper_day = "$4"\n')
    with pytest.raises(RefusedError, match="budget of the day"):
        home.start("new", "say hello")


def test_a_prompt_queued_before_a_budget_was_used_up_is_held_until_the_user_raises_it(home: Home) -> None:
    configure(home, "1k")
    session = home.start("queues", "slow 5\nusage 900 200\nsay done", speed=1.0)
    until(lambda: home.session(session).in_turn, what="the turn")
    for text in ("say held", "say behind"):
        asyncio.run(send(home.paths, home.session(session), text, "idle"))

    def reason() -> str:
        return next(each.reason for each in home.session(session).receipts if each.text == "say held")

    until(lambda: reason().startswith("held"), what="the hold")
    assert reason().startswith("held: the budget of the session: 1.1k tokens of 1.0k tokens is used")
    assert (2, 1) == (home.session(session).queue, home.session(session).turns)
    (notice,) = home.facts(NoticeRaised, session)
    assert notice.text.startswith("A queued prompt is held: the budget of the session")

    configure(home, "1M")
    until(lambda: home.session(session).turns == 3, what="the queued prompts")
    assert ["", ""] == [each.reason for each in home.session(session).receipts[-2:]]


def test_a_queued_prompt_that_the_user_sent_over_the_budget_is_delivered(home: Home) -> None:
    configure(home, "1k")
    session = home.start("queues", "slow 5\nusage 900 200\nsay done", speed=1.0)
    until(lambda: home.session(session).in_turn, what="the turn")
    asyncio.run(send(home.paths, home.session(session), "say agreed", "idle", over_budget=True))
    asyncio.run(send(home.paths, home.session(session), "say held", "idle"))

    until(lambda: home.session(session).receipts[-1].reason.startswith("held"), what="the hold")
    assert (1, 2) == (home.session(session).queue, home.session(session).turns)
