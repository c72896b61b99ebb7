"""A turn that ended since a person last looked at its session."""

from typing import Any

import pytest

from kasmon.model.commands import Mode
from kasmon.model.events import Event, SessionEnded, SessionViewed, SignalSeen, TurnEnded
from kasmon.model.fleet import Fleet, by_attention, totals
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.sample_events import ME, asks, fold, receipt, started, turn
from tests.support.sample_fleet import NOW, asking, ended, idle, session, working

ENDED = TurnEnded(at=4.0)
VIEWED = SessionViewed(at=5.0, session=ME)
TERMINAL = Session(id=ME, mode=Mode.TMUX, program="claude")


def signal(value: str, at: float) -> SignalSeen:
    return SignalSeen(at=at, source="program", value=value)


@pytest.mark.parametrize(
    ("events", "is_unviewed"),
    [
        ([turn(), ENDED], True),
        ([turn(), TurnEnded(at=4.0, reason="error", error="overloaded")], True),
        ([turn(), TurnEnded(at=4.0, reason="interrupted")], False),
        ([turn(), ENDED, VIEWED], False),
        ([VIEWED, turn(at=6.0), TurnEnded(at=7.0)], True),
        ([turn(), ENDED, turn(at=6.0)], False),
        ([turn(), ENDED, asks(at=6.0)], False),
        ([], False),
    ],
    ids=["ended", "failed", "interrupted", "viewed", "a further one", "it works again", "it asks", "no turn"],
)
def test_a_turn_that_ended_is_unviewed_until_the_user_views_it(events: list[Event], is_unviewed: bool) -> None:
    assert is_unviewed is fold(started(), *events).is_unviewed


@pytest.mark.parametrize(
    ("events", "is_unviewed"),
    [
        ([signal("idle", 2.0), signal("working", 3.0), signal("idle", 9.0)], True),
        ([signal("idle", 2.0), signal("working", 3.0), signal("asking", 5.0), signal("idle", 9.0)], True),
        ([signal("working", 3.0), signal("idle", 9.0)], False),
        ([signal("idle", 2.0), signal("working", 3.0), signal("", 5.0), signal("idle", 9.0)], True),
        ([receipt(1, "typed"), signal("working", 3.0), signal("idle", 9.0)], True),  # type: ignore[arg-type]
        ([signal("idle", 2.0), signal("working", 3.0), started(2, at=5.0), signal("idle", 9.0)], False),
    ],
    ids=["ended", "asked", "only began", "doubtful for a while", "on its first prompt", "restarted"],
)
def test_a_terminal_agents_turn_is_work_that_ends_at_its_prompt(events: list[Event], is_unviewed: bool) -> None:
    assert is_unviewed is fold(started(mode=Mode.TMUX), *events, session=TERMINAL).is_unviewed


@pytest.mark.parametrize(
    ("end", "is_unviewed"),
    [
        ({"exit_code": 0}, True),
        ({"exit_code": 0, "why": "stopped"}, False),
        ({"exit_code": 1}, False),
        ({"signal": "SIGKILL"}, False),
    ],
    ids=["by itself", "stopped", "failed", "killed"],
)
def test_a_turn_stays_unviewed_when_its_agent_ends_by_itself(end: dict[str, Any], is_unviewed: bool) -> None:
    events: list[Event] = [started(), turn(), ENDED, SessionEnded(at=6.0, **end)]
    assert is_unviewed is fold(*events).is_unviewed
    assert not fold(*events, VIEWED).is_unviewed
    assert not fold(started(), SessionEnded(at=6.0, exit_code=0)).is_unviewed


def test_a_command_that_ended_in_a_shell_is_no_turn() -> None:
    shell = Session(id=ME, mode=Mode.TMUX, program="bash")
    events: list[Event] = [started(mode=Mode.TMUX), signal("idle", 2.0), signal("working", 3.0), signal("idle", 9.0)]
    assert not fold(*events, session=shell).is_unviewed


def test_finished_sessions_sort_right_below_asking_ones_and_are_counted() -> None:
    finished = idle("finished", finished_at=NOW - 5)
    everybody = [
        working("working"),
        ended("crashed", 1),
        session("lost", SessionState.LOST),
        idle("looked-at", finished_at=NOW - 50, viewed_at=NOW - 40),
        finished,
        asking("asking", ago=1),
    ]

    assert ["asking", "finished", "lost", "crashed"] == [each.name for each in by_attention(everybody)][:4]
    counted = totals(Fleet(sessions=tuple(everybody)))
    assert (1, 1) == (counted.finished, counted.states[SessionState.IDLE])


def test_a_sandbox_of_interpreters_finishes_nothing_for_a_person() -> None:
    assert not idle("x", mode=Mode.INTERPRETER, finished_at=NOW).is_unviewed
