"""Which target gets which message, and when."""

from datetime import UTC

import msgspec
import pytest

from kasmon.config import NotifyTarget
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.notifications.alerts import AGAIN_S, STORM_S
from kasmon.supervisor.notifications.push_schedule import (
    GATHER_S,
    NEWS_S,
    PAUSES_S,
    Push,
    PushSchedule,
    SentRecord,
    is_quiet,
)
from tests.support.sample_fleet import NOW, asking, command, ended, idle, session, working

GATHERED_S = GATHER_S + 0.01
ALWAYS = NotifyTarget(url="-", when="always")


class World:
    """A schedule over sessions that the test changes, on a clock that the test moves."""

    def __init__(self, *sessions: Session, sent: SentRecord | None = None, **targets: NotifyTarget) -> None:
        self.schedule, self.at, self.is_away = PushSchedule(sent, UTC), NOW, True
        self.sessions = {each.id: each for each in sessions}
        self.schedule.begin(sessions)
        self.targets = targets or {"phone": ALWAYS}

    def now(self, *changed: Session, after: float = 0.0) -> bool:
        self.at += after
        is_new = self.schedule.update(dict(self.sessions), changed, self.at)
        self.sessions |= {each.id: each for each in changed}
        return is_new

    def due(self, after: float = GATHERED_S) -> list[Push]:
        self.at += after
        return self.schedule.pop_due(self.targets, is_away=self.is_away, now=self.at)

    def titles(self, after: float = GATHERED_S) -> list[str]:
        return [f"{push.target}: {push.alert.title}" for push in self.due(after)]


@pytest.mark.parametrize(
    ("after", "title"),
    [
        (asking("x"), "x has a request"),
        (session("x", SessionState.ASKING), "x has a request"),
        (session("x", SessionState.LOST), "Lost contact with x"),
        (ended("x", 1), "x crashed"),
        (working("x", stuck=True, stuck_why="again"), "x may be stuck"),
        (session("x", SessionState.LIMITED), "x reached a usage limit"),
    ],
)
def test_a_reason_is_pushed_once_and_not_after_it_is_over(after: Session, title: str) -> None:
    world = World(working("x"))
    assert world.now(after)
    assert [f"phone: {title}"] == world.titles()
    assert not world.now(msgspec.structs.replace(after, last_line="still"))
    assert [] == world.titles(after=3600)

    world = World(working("x"))
    world.now(after)
    world.now(working("x", "on it"))
    assert [] == world.titles()


def test_each_further_request_is_a_reason_and_several_of_one_call_count_once() -> None:
    world = World(working("x"))
    world.now(asking("x", command("x", "make", 1), command("x", "ls", 2)))
    [push] = world.due()
    assert ("Bash make", "x-1", ("x-1", "x-2")) == (
        push.alert.text,
        push.request.id if push.request else "",
        push.keys,
    )

    world.now(asking("x", command("x", "ls", 2), command("x", "rm -r build", 3)), after=5)
    assert [("x-3",)] == [push.keys for push in world.due()]


def test_a_burst_is_one_message_and_later_ones_wait_for_its_end() -> None:
    names = [f"s{number}" for number in range(6)]
    world = World(*map(working, names))
    world.now(*map(asking, names[:4]))
    assert ["phone: 4 sessions need attention"] == world.titles()

    for name in ("s4", "s5"):
        world.now(asking(name))
        assert [f"phone: {name} has a request"] == world.titles()
    world.now(working("s0"), working("s1"))
    world.now(asking("s0", command("s0", "a", 8)), asking("s1", command("s1", "b", 8)))
    assert [] == world.titles()
    assert 2 == len(world.titles(after=STORM_S))


def test_a_new_process_pushes_open_requests_that_the_one_before_did_not_push_and_nothing_else() -> None:
    first = World(working("x"))
    first.now(asking("x"))
    first.due()
    again = World(asking("x"), asking("y"), ended("z", 1), sent=first.schedule.sent)

    assert ["phone: y has a request"] == again.titles()


def test_a_target_for_when_the_user_is_away_gets_open_requests_once_the_user_leaves() -> None:
    world = World(working("x"), phone=NotifyTarget(url="-"), desk=NotifyTarget(url="-", when="desk"))
    world.is_away = False
    world.now(asking("x"))
    assert ["desk: x has a request"] == world.titles()

    world.is_away = True
    assert ["phone: x has a request"] == world.titles(after=300)
    world.is_away = False
    assert [] == world.titles(after=300)


def test_quiet_hours_delay_what_is_still_open_at_their_end() -> None:
    world = World(working("x"), working("y"), phone=NotifyTarget(url="-", when="always", quiet_hours="22:00-07:00"))
    world.at = 1_789_945_200.0  # 23:00 UTC
    world.now(asking("x"), asking("y"))
    assert [] == world.titles()
    world.now(working("y"), after=3600)
    assert [] == world.titles(after=7 * 3600 - 60)

    assert ["phone: x has a request"] == world.titles(after=60)


@pytest.mark.parametrize(
    ("hours", "quiet"),
    [("22:00-07:00", True), ("23:00-23:01", True), ("00:00-23:00", False), ("23:00-23:00", False), ("", False)],
)
def test_quiet_hours_may_span_midnight_and_end_before_their_second_time(hours: str, quiet: bool) -> None:
    assert quiet == is_quiet(hours, 1_789_945_200.0, UTC)


def test_only_requests_unanswered_after_the_escalation_time_go_to_the_second_target() -> None:
    world = World(
        working("x"), working("y"), phone=ALWAYS, pager=msgspec.structs.replace(ALWAYS, escalate_after_minutes=10.0)
    )
    world.now(asking("x"), asking("y"))
    assert ["phone: x has a request", "phone: y has a request"] == world.titles()
    world.now(working("x"), after=300)
    assert [] == world.titles(after=299)

    assert ["pager: y has a request"] == world.titles(after=1)
    assert [] == world.titles(after=3600)


def test_a_target_gets_its_own_events_of_its_own_sessions() -> None:
    world = World(
        working("api-1"),
        working("web"),
        some=msgspec.structs.replace(ALWAYS, sessions=("api-*",)),
        crashes=msgspec.structs.replace(ALWAYS, events=("crashed",)),
    )
    world.now(asking("api-1"), ended("web", 1))

    assert ["some: api-1 has a request", "crashes: web crashed"] == world.titles()


def test_a_failed_push_is_retried_while_its_reason_is_open_and_then_given_up() -> None:
    world = World(working("x"))
    world.now(asking("x"))
    [push] = world.due()
    for pause in PAUSES_S:
        assert world.schedule.fail(push, world.at)
        assert [] == world.titles(after=pause - 1)
        [push] = world.due(after=1.1)
    assert not world.schedule.fail(push, world.at)
    assert [] == world.titles(after=3600)


def test_an_agent_that_is_stuck_repeatedly_is_a_reason_once_in_ten_minutes() -> None:
    world = World(working("x"))
    for _ in range(3):
        world.now(working("x", stuck=True, stuck_why="a"), after=1)
        world.now(working("x"), after=1)
    world.now(working("x", stuck=True, stuck_why="a"))
    assert [] == world.titles()
    world.now(working("x"))
    world.now(working("x", stuck=True, stuck_why="a"), after=AGAIN_S)
    assert ["phone: x may be stuck"] == world.titles()


def test_the_end_of_long_work_is_pushed_unless_it_was_viewed_or_is_old() -> None:
    done = idle("x", ago=0, finished_at=NOW)
    for later, changes, pushed in (
        (0.0, [done], True),
        (0.0, [done, msgspec.structs.replace(done, viewed_at=NOW + 1)], False),
        (0.0, [done, working("x", "next", finished_at=NOW)], False),
        (NEWS_S + 1, [done], False),
    ):
        world = World(working("x", ago=200))
        for each in changes:
            world.now(each)
        assert pushed == bool(world.titles(after=later + GATHERED_S)), (later, changes)


def test_a_session_that_was_removed_is_no_reason_and_its_process_may_end() -> None:
    world = World(working("x"), phone=NotifyTarget(url="-"))
    world.is_away = False
    world.now(asking("x"))
    assert [] == world.titles()
    assert world.schedule.is_waiting(world.targets)

    world.schedule.forget(world.sessions["x"].id)  # type: ignore[index]
    assert not world.schedule.is_waiting(world.targets)
