"""Who needs a person, and who first."""

import msgspec
import pytest

from kasmon.model.attention import AttentionReason, need, next_pressing, pressing, waiting_peers, waits_since
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.sample_fleet import NOW, asking, command, ended, idle, session, working


def aside(name: str, ago: float = 12.0) -> Session:
    return asking(name, msgspec.structs.replace(command(name, "ls", ago=ago), later=True), ago=ago)


def names(*sessions: Session) -> list[str]:
    return [each.name for each in pressing(sessions, NOW)]


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (asking("x"), AttentionReason.ASKING),
        (session("x", SessionState.ASKING), AttentionReason.ASKING),
        (aside("x"), AttentionReason.ASIDE),
        (idle("x", finished_at=NOW), AttentionReason.FINISHED),
        (session("x", SessionState.LOST), AttentionReason.LOST),
        (ended("x", 1), AttentionReason.CRASHED),
        (working("x", stuck=True), AttentionReason.STUCK),
        (session("x", SessionState.UNSURE), AttentionReason.UNSURE),
    ],
)
def test_states_that_need_the_user(who: Session, why: AttentionReason) -> None:
    assert why is need(who)


@pytest.mark.parametrize(
    "who",
    [
        working("x"),
        idle("x"),
        idle("x", finished_at=NOW - 9, viewed_at=NOW),
        ended("x", 0),
        ended("x", 1, stopped=True),
        session("x", SessionState.LIMITED),
        session("x", SessionState.STANDBY),
        session("x", SessionState.HIBERNATED),
    ],
)
def test_states_that_do_not(who: Session) -> None:
    assert need(who) is None
    assert [] == names(who)


def test_the_kind_has_priority_over_the_waiting_time() -> None:
    everybody = [
        aside("aside", ago=9000),
        session("unsure", SessionState.UNSURE, ago=8000),
        working("stuck", stuck=True, ago=7000),
        ended("crashed", 1, ago=6000),
        session("lost", SessionState.LOST, ago=5000),
        idle("finished", finished_at=NOW, ago=2),
        asking("asking", ago=1),
    ]

    assert ["asking", "finished", "lost", "crashed", "stuck", "unsure", "aside"] == names(*everybody)


def test_of_one_kind_the_one_that_waits_longest_comes_first_counted_from_when_it_was_asked() -> None:
    assert ["old", "young"] == names(asking("young", ago=5), asking("old", ago=50))

    two = asking("two", command("two", "ls", 1, ago=90), command("two", "make", 2, ago=5), ago=5)
    assert NOW - 90 == waits_since(two)


def test_peers_that_are_done_and_wait_count_like_the_session_itself() -> None:
    """Forty seconds of one and two who wait for it cost more than a hundred of one alone."""
    alone = asking("alone", ago=100)
    held = asking("holds-up", ago=40, wave=2, task=1)
    peers = [idle("p1", wave=2, task=2), ended("p2", 0, wave=2, task=3)]

    assert ["alone", "holds-up"] == names(alone, held)
    assert ["holds-up", "alone"] == names(alone, held, *peers)


def test_peers_that_work_or_belong_to_another_plan_do_not_wait() -> None:
    held = asking("holds-up", ago=40, wave=2, task=1)
    others = [
        working("p1", wave=2, task=2),
        ended("p2", 1, wave=2, task=3),
        idle("p3", wave=2, plan="other"),
        idle("p4", wave=1),
    ]

    assert 0 == waiting_peers([held, *others])["", 2]


def test_the_next_one_is_the_one_below_after_the_last_the_first_and_of_one_alone_none() -> None:
    order = pressing([asking("a", ago=30), asking("b", ago=20), asking("c", ago=10)], NOW)

    def after(name: str | None) -> str:
        found = next_pressing(order, None if name is None else SessionId(name))
        return found.name if found else ""

    assert ["a", "b", "c", "a"] == [after(None), after("a"), after("b"), after("c")]
    assert "a" == after("somebody else")

    assert next_pressing(pressing([asking("a")], NOW), SessionId("a")) is None
    assert next_pressing((), SessionId("a")) is None
