"""Whether an agent gets anywhere: by what comes of its work, never by what it prints."""

import pytest

from kasmon.host.session.stuck_monitor import StuckLimits, stuck
from kasmon.model.events import (
    ContextReported,
    Event,
    MessageWritten,
    NoticeRaised,
    RequestAnswered,
    RequestOpened,
    SessionStarted,
    SignalSeen,
    StuckSeen,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from kasmon.model.permission import Decision, RequestId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from tests.support.sample_fleet import command, session

LIMITS = StuckLimits(after_s=600, calls=3)


def fold(*events: Event) -> Session:
    folded = session("x", SessionState.STARTING, generation=0)
    for event in (SessionStarted(at=0), TurnStarted(at=10, prompt="go"), *events):
        folded = apply(folded, event)
    return folded


def why(*events: Event, at: float, seen_at: float = 0) -> str:
    return stuck(fold(*events), LIMITS, seen_at, at)


def call(at: float, line: str = "make", within: str = "") -> ToolStarted:
    return ToolStarted(at=at, call=f"c{at}", tool="Bash", title=line, input=line, within=within)


@pytest.mark.parametrize("source", ["launch", "process", "output"])
def test_a_program_without_any_signal_but_running_is_never_stuck(source: str) -> None:
    assert "" == stuck(session("x", SessionState.WORKING, source=source, since=0), LIMITS, 0, 10_000)
    assert "" != stuck(session("x", SessionState.WORKING, source="screen", since=0), LIMITS, 0, 10_000)


def test_an_agent_without_effect_for_the_limit_is_stuck_and_shows_for_how_long() -> None:
    assert "" == why(at=609)
    assert "no progress for 10 min" == why(at=610)


@pytest.mark.parametrize(
    "event",
    [
        MessageWritten(at=300, text="so"),
        ToolFinished(at=300, call="c"),
        UsageReported(at=300, output=5),
        SignalSeen(at=300, source="hook", value="working"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_effect_restarts_the_time(event: Event) -> None:
    assert "" == why(event, at=899)
    assert why(event, at=900)


@pytest.mark.parametrize(
    "event",
    [
        NoticeRaised(at=300, text="retrying"),
        SignalSeen(at=300, source="output", value="printing"),
        SignalSeen(at=300, source="title", value="working"),
        UsageReported(at=300, input=900),
    ],
    ids=["notice", "prints", "title", "tokens read"],
)
def test_a_change_on_the_screen_alone_is_no_effect(event: Event) -> None:
    """A spinner's bytes are no work."""
    assert why(event, at=610)


def test_another_turn_counts_calls_anew_and_an_effect_without_a_fact_counts() -> None:
    """A file that was written, a child that computes, text that is being written."""
    assert "" == why(at=1000, seen_at=500)
    assert why(at=1100, seen_at=500)
    assert "" == why(call(20), call(21), TurnEnded(at=22), TurnStarted(at=23), call(24), at=30)


def test_the_same_call_repeated_is_stuck_whatever_its_results() -> None:
    twice: list[Event] = [call(20), ToolFinished(at=21, call="a"), call(22), ToolFinished(at=23, call="b")]

    assert "" == why(*twice, at=30)
    assert "the same call 3 times in a row" == why(*twice, call(24), at=30)
    assert "" == why(*twice, call(24, "make test"), at=30)
    assert "" == why(*twice, call(24, within="sub"), at=30)


def test_an_agent_that_reported_waiting_is_not_stuck_until_its_next_turn() -> None:
    waits = ContextReported(at=20, waiting="the other tasks")

    assert "" == why(waits, at=9000)
    assert "the other tasks" == fold(waits).waits
    assert "the other tasks" == fold(waits, TurnEnded(at=30)).waits
    assert "" == fold(waits, TurnEnded(at=30), TurnStarted(at=40)).waits
    assert why(waits, TurnEnded(at=30), TurnStarted(at=40), at=9000)


def test_a_question_in_a_turn_does_not_end_its_waiting_but_it_can_be_taken_back() -> None:
    asked = RequestOpened(at=21, request=command("x", "ls"))
    answered = RequestAnswered(at=22, request=RequestId("x-1"), decision=Decision.ALLOW)
    assert "lunch" == fold(ContextReported(at=20, waiting="lunch"), asked, answered).waits

    assert "" == fold(ContextReported(at=20, waiting="lunch"), ContextReported(at=21, waiting="")).waits
    assert "lunch" == fold(ContextReported(at=20, waiting="lunch"), ContextReported(at=21, done="half")).waits


def test_a_done_task_stays_done_until_the_next_start() -> None:
    said = fold(ContextReported(at=20, done="all green"), TurnEnded(at=21), TurnStarted(at=22))

    assert "all green" == said.done
    assert apply(said, SessionStarted(at=30, generation=2)).done is None


@pytest.mark.parametrize("limits", [StuckLimits(after_s=0, calls=0)])
def test_zero_means_never(limits: StuckLimits) -> None:
    looping = fold(*(call(at) for at in range(20, 60)))

    assert "" == stuck(looping, limits, 0, 1e9)


def test_only_a_working_agent_can_be_stuck() -> None:
    assert "" == why(TurnEnded(at=20), at=9000)
    assert "" == why(RequestOpened(at=20, request=command("x", "ls")), at=9000)


def test_the_flag_is_set_and_cleared_by_its_event_and_with_the_work() -> None:
    flagged = fold(StuckSeen(at=700, why="no progress for 10 min"))

    assert (True, "no progress for 10 min") == (flagged.stuck, flagged.stuck_why)
    assert SessionState.WORKING is flagged.state
    assert not apply(flagged, StuckSeen(at=701)).stuck
    assert not apply(flagged, TurnEnded(at=701)).stuck
    assert not apply(flagged, ContextReported(at=701, waiting="a build")).stuck
    assert not fold(TurnEnded(at=20), StuckSeen(at=21, why="late")).stuck


def test_a_stuck_session_is_among_those_that_need_the_user() -> None:
    flagged = fold(StuckSeen(at=700, why="no progress for 10 min"))

    assert session("x", SessionState.UNSURE).attention == flagged.attention
    assert fold().attention > flagged.attention
