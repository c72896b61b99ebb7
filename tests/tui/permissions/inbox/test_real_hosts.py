"""The inbox over real hosts, on real terminals: it outlives its dashboard, and of two answers one counts."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kasmon.model.commands import Answer
from kasmon.model.events import RequestAnswered
from kasmon.model.permission import Decision, SessionId
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sessions import session_operations
from kasmon.tui.permissions.queue import DEAF_S
from tests.support.tui.dashboard import LIMIT_S, Dashboard, Home, press_on_card
from tests.support.wait import until

FIVE = {
    "docs": "ask git push origin docs",
    "parser": "ask git push origin parser",
    "store": "question Which store?|red|green",
    "planner": "approve ## Steps",
    "cleaner": "ask rm -rf build",
}
"""Session -> what it asks."""
Value = TypeVar("Value")
END = b"\x1b[F"


@pytest.fixture
def home() -> Iterator[Home]:
    with Home() as made:
        yield made


def pending(home: Home, *names: str) -> dict[str, SessionId]:
    """Sessions of these names, each of which asks, one after the other."""
    sessions: dict[str, SessionId] = {}
    for name in names:
        session = sessions[name] = home.start(name, FIVE[name])
        until(lambda session=session: home.session(session).requests, LIMIT_S, f"what {name} asks")  # type: ignore[misc]
    return sessions


def answers(home: Home, session: SessionId) -> list[RequestAnswered]:
    return home.facts(RequestAnswered, session)


def armed(dashboard: Dashboard, *texts: str) -> None:
    """Wait until *texts* are there, and the card that has them takes keys: not the one whose "ready" is drawn over."""
    dashboard.shows(*texts)
    drawn_over_by = time.monotonic() + DEAF_S / 2
    until(lambda: time.monotonic() > drawn_over_by, what="the time")
    dashboard.shows(*texts, "ready")


def press(dashboard: Dashboard, key: bytes, outcome: Callable[[], Value | None]) -> Value:
    return press_on_card(lambda: dashboard.send(key), lambda: dashboard.screen, outcome)


def opened(dashboard: Dashboard, waiting: int) -> None:
    """The inbox, opened by its key; no card rose by itself."""
    dashboard.shows(f"{waiting} pending request")
    assert f"1 of {waiting}" not in dashboard.screen
    dashboard.send(b"I")
    armed(dashboard, f"inbox  {waiting} pending")


@pytest.mark.timeout(120)
def test_five_requests_survive_their_dashboard_and_are_answered_in_the_inbox_of_the_next(home: Home) -> None:
    sessions = pending(home, *FIVE)
    with Dashboard(home) as dashboard:
        dashboard.shows("5 asking")
        os.kill(dashboard.process.pid, signal.SIGKILL)
        dashboard.shows("was killed (signal 9)")
    with Dashboard(home) as dashboard:
        opened(dashboard, 5)
        dashboard.send(b"T")
        armed(dashboard, "2 similar requests")
        dashboard.send(b"a")
        armed(dashboard, "○ red")
        dashboard.send(b"2\r")
        armed(dashboard, "Approve the plan")
        dashboard.send(b"a")
        armed(dashboard, "Edit, then allow")
        dashboard.send(b"e")
        dashboard.shows("review changes")
        dashboard.send(END + b" -v\x1b")
        armed(dashboard, "will run instead")
        dashboard.send(b"a")
        dashboard.shows("No pending requests.")

        def said() -> dict[str, list[tuple[Decision, tuple[str, ...]]]]:
            return {
                name: [(each.decision, each.labels) for each in answers(home, id_)] for name, id_ in sessions.items()
            }

        expected = {
            "docs": (Decision.ALLOW, ()),
            "parser": (Decision.ALLOW, ()),
            "store": (Decision.CHOOSE, ("green",)),
            "planner": (Decision.ALLOW, ()),
            "cleaner": (Decision.EDIT, ()),
        }
        until(lambda: {name: [answer] for name, answer in expected.items()} == said(), LIMIT_S)
        for session in sessions.values():
            until(lambda session=session: home.session(session).state is SessionState.IDLE, LIMIT_S)  # type: ignore[misc]
        dashboard.send(b"\x1b")
        dashboard.shows("5 finished")
        assert 0 == dashboard.quit()


@pytest.mark.timeout(120)
def test_one_of_two_inboxes_wins_and_the_other_names_it(home: Home) -> None:
    sessions = pending(home, "docs", "cleaner", "store")
    with Dashboard(home) as one, Dashboard(home) as other:
        for dashboard in (one, other):
            opened(dashboard, 3)
        press(one, b"d", lambda: "Reason (optional" in one.screen)
        one.send(b"not now\r")
        [won] = until(lambda: answers(home, sessions["docs"]), LIMIT_S)
        assert (Decision.DENY, True) == (won.decision, bool(won.who))
        one.shows(f"Denied by user at {won.who}.")
        armed(other, f"Denied by user at {won.who}.", "No answer is sent from here.")
        press(other, b"j", lambda: "1 of 2" in other.screen)  # from what is over to the one that the first has already

        for dashboard in (one, other):
            armed(dashboard, "rm -rf build", "1 of 2")
        one.send(b"a")
        [won] = press(other, b"a", lambda: answers(home, sessions["cleaner"]))
        for dashboard in (one, other):
            dashboard.shows(f"Allowed once by user at {won.who}.")
        until(lambda: home.session(sessions["cleaner"]).state is SessionState.IDLE, LIMIT_S)
        assert 1 == len(answers(home, sessions["cleaner"]))
        assert [] == answers(home, sessions["store"])


@pytest.mark.timeout(120)
def test_requests_of_a_dead_host_are_void_at_once(home: Home) -> None:
    sessions = pending(home, "docs", "cleaner")
    with Dashboard(home) as dashboard:
        opened(dashboard, 2)
        host = home.session(sessions["cleaner"]).host
        assert host is not None
        assert host.pid is not None
        os.kill(host.pid, signal.SIGKILL)
        dashboard.shows("1 pending")

        dashboard.hides("rm -rf build")


def test_q_right_after_the_last_request_was_answered_elsewhere_quits(home: Home) -> None:
    """The card is still there, and says who; no key is lost on it."""
    sessions = pending(home, *FIVE)
    with Dashboard(home) as dashboard:
        dashboard.shows("5 pending requests")
        dashboard.send(b"i")
        armed(dashboard, "1 of 5")
        for session in map(home.session, sessions.values()):
            [ask] = session.requests
            decision = Decision.DENY if Decision.DENY in ask.choices else Decision.CHOOSE
            given = Answer(
                request=ask.id,
                digest=ask.digest,
                decision=decision,
                labels=ask.options[:1] if decision is Decision.CHOOSE else (),
            )
            asyncio.run(session_operations.execute(home.paths, session, given))

        assert 0 == dashboard.quit()
