"""What changed a session's state is told from its facts: which fact it was, or that it was time."""

from kasmon.model import events
from kasmon.model.commands import Mode
from kasmon.model.evidence import SETTLE_S
from kasmon.model.permission import Request, RequestId, RequestKind, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.sessions.explain import BY_TIME, transitions

ME = SessionId("abcdefgh")


def began(at: float, mode: Mode = Mode.TMUX) -> events.SessionStarted:
    return events.SessionStarted(at=at, generation=1, backend="tmux", mode=mode, workdir="/", pid=5)


def said(source: str, value: str, at: float) -> events.SignalSeen:
    return events.SignalSeen(at=at, source=source, value=value)  # type: ignore[arg-type]


def told(
    *facts: events.Event, mode: Mode = Mode.TMUX, until: float = 1000.0
) -> list[tuple[float, SessionState, str, str]]:
    session = Session(id=ME, mode=mode)
    return [(one.at, one.state, one.source, one.by) for one in transitions(session, facts, until)]


def test_each_change_has_its_source_and_its_event() -> None:
    facts = (began(1), said("screen", "idle", 2), said("title", "working", 3), said("screen", "working", 4))

    assert [
        (2, SessionState.IDLE, "screen", "signal.seen screen"),
        (3, SessionState.WORKING, "title", "signal.seen title"),
    ] == told(*facts)


def test_the_time_alone_makes_a_change_when_sources_disagree_for_too_long() -> None:
    facts = (began(1), said("title", "working", 2), said("screen", "idle", 3))
    doubted = (3 + SETTLE_S, SessionState.UNSURE, "title", BY_TIME)

    assert [(2, SessionState.WORKING, "title", "signal.seen title"), doubted] == told(*facts)
    late = said("screen", "working", 100.0)
    assert [doubted, (100.0, SessionState.WORKING, "title", "signal.seen screen")] == told(*facts, late)[1:]
    assert [] == told(*facts, until=3.0)[1:]


def test_a_request_is_a_change_too_and_the_end_has_its_reason() -> None:
    request = Request(id=RequestId("abcdefgh-1"), session=ME, kind=RequestKind.PLAN)
    facts = (
        began(1, Mode.SDK),
        events.TurnStarted(at=2, prompt="go"),
        events.MessageWritten(at=3, text="hello"),
        events.RequestOpened(at=4, request=request),
        events.SessionEnded(at=5, why="stopped"),
    )
    found = transitions(Session(id=ME, mode=Mode.SDK), facts, 9.0)

    assert [SessionState.IDLE, SessionState.WORKING, SessionState.ASKING, SessionState.ENDED] == [
        one.state for one in found
    ]
    assert [None, None, RequestKind.PLAN, None] == [one.asking for one in found]
    assert ("session.ended", "stopped") == (found[-1].by, found[-1].why)
