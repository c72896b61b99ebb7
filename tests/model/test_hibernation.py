"""Which sessions may be hibernated, and what their logs then add up to."""

import msgspec
import pytest

from kasmon.model import events
from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.hibernation import find_obstacle, propose, propose_for_budget
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.sample_events import ME, asks, ended, fold, receipt, started, turn

BEGUN = events.HibernationBegun(at=20.0, freed_bytes=300_000_000)
LOST = events.ConnectionLost(at=21.0, what="tmux server")
QUEUED = receipt(1, ReceiptState.QUEUED)


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
@pytest.mark.parametrize("end", [ended(why="stopped"), ended(1), LOST], ids=["stopped", "failed", "lost"])
def test_an_agent_that_ends_while_it_is_hibernated_is_hibernated_for_any_exit(mode: Mode, end: events.Event) -> None:
    session = fold(started(), BEGUN, end, session=Session(id=ME, mode=mode))

    assert (SessionState.HIBERNATED, 300_000_000) == (session.state, session.freed_bytes)
    assert not session.crashed
    assert not session.exists


def test_a_resumed_session_ends_like_any_other() -> None:
    session = fold(started(), BEGUN, ended(why="stopped"), started(2))
    assert (SessionState.IDLE, None) == (session.state, session.freed_bytes)

    assert SessionState.ENDED is fold(ended(why="stopped"), session=session).state


def test_a_hibernated_session_keeps_its_queue_and_its_unviewed_turns() -> None:
    over = events.TurnEnded(at=4.0)
    session = fold(started(), turn("x"), QUEUED, over, BEGUN, ended(why="stopped"))

    assert session.is_unviewed
    assert 1 == session.queue


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ((), "it is starting"),
        ((started(), turn("x")), "its turn has not ended"),
        ((started(), asks()), "it has an open request"),
        ((started(), QUEUED), "1 prompt is queued"),
        ((started(), events.ContextReported(at=3.0, waiting="the build")), "it reported that it waits: the build"),
        ((started(), BEGUN), "it is being hibernated already"),
        ((started(), BEGUN, ended()), "it is being hibernated already"),
        ((started(), ended()), "it is ended"),
        ((started(), LOST), "it is lost"),
        ((started(),), ""),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_only_an_idle_agent_without_pending_work_may_be_ended(history: tuple[events.Event, ...], why: str) -> None:
    assert why == find_obstacle(fold(*history, session=Session(id=ME, mode=Mode.SDK)))


def test_the_sessions_that_are_idle_the_longest_are_proposed_first() -> None:
    def idle(name: str, since: float, **more: object) -> Session:
        session = fold(started(), session=Session(id=SessionId(name), mode=Mode.SDK, resume_id=name))
        return msgspec.structs.replace(session, since=since, **more)

    sessions = [idle("b", 2.0), idle("a", 1.0), idle("no-id", 0.0, resume_id=None), idle("boxed", 0.0, sandbox="jail")]
    busy = fold(turn("x"), session=idle("busy", 0.0))

    assert ["a", "b"] == [each.id for each in propose([*sessions, busy])]

    memory = {SessionId(name): 100 for name in ("a", "b", "busy")}
    for budget, proposed in ((0, []), (300, []), (250, ["a"]), (150, ["a", "b"]), (1, ["a", "b"])):
        assert proposed == [each.id for each in propose_for_budget([*sessions, busy], memory, budget)]
