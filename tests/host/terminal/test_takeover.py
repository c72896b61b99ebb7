"""What became of a session while it had no host, and what is found in its place."""

import time

import msgspec
import pytest

from kasmon.host.terminal import takeover
from kasmon.model.commands import Launch, Mode
from kasmon.model.events import ConnectionLost, SessionEnded, SessionForgotten, SessionStarted
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.session import Session, created
from kasmon.paths import user_paths, write_private
from kasmon.store.event_log import EventLog
from kasmon.tmux.formats import PaneFacts


def launch(session: str, mode: Mode = Mode.TMUX) -> Launch:
    return Launch(session=SessionId(session), name=session, agent="shell", mode=mode, backend="tmux", argv=("cat",))


TODAY = "boot-2"


def runs(started: float | None = 100.0, of_boot: str = TODAY) -> Session:
    fact = SessionStarted(at=1.0, mode=Mode.TMUX, pid=7, pid_started=started, pid_boot=of_boot)
    return apply(created(launch("abcdefgh"), 0.0), fact)


def pane(session: str = "abcdefgh", *, is_dead: bool = False, number: int = 1) -> PaneFacts:
    return PaneFacts(
        pane_id=f"%{number}",
        window_id=f"@{number}",
        session_id=f"${number}",
        pid=7,
        is_dead=is_dead,
        status=None,
        signal=None,
        in_mode=False,
        width=120,
        height=40,
        attached=0,
        activity_at=0,
        kasmon_id=session,
        ready="",
    )


ended = apply(runs(), SessionEnded(at=2.0))
lost = apply(runs(), ConnectionLost(at=2.0, what="tmux server"))


@pytest.mark.parametrize(
    ("session", "facts", "server_started", "expected"),
    [
        (runs(), pane(), 50.0, takeover.TakeoverOutcome.FOUND),
        (runs(), pane(is_dead=True), 50.0, takeover.TakeoverOutcome.FOUND),
        (runs(), None, 50.0, takeover.TakeoverOutcome.GONE),
        (runs(), None, None, takeover.TakeoverOutcome.LOST),
        (runs(), None, 150.0, takeover.TakeoverOutcome.LOST),
        (runs(None), None, 150.0, takeover.TakeoverOutcome.GONE),
        (runs(of_boot="boot-1"), None, 50.0, takeover.TakeoverOutcome.LOST),
        (runs(of_boot=""), None, 50.0, takeover.TakeoverOutcome.GONE),
        (ended, pane(is_dead=True), 50.0, takeover.TakeoverOutcome.NOTHING),
        (ended, None, None, takeover.TakeoverOutcome.NOTHING),
        (lost, None, 150.0, takeover.TakeoverOutcome.NOTHING),
        (lost, pane(), 50.0, takeover.TakeoverOutcome.FOUND),
        (created(launch("abcdefgh"), 0.0), None, 50.0, takeover.TakeoverOutcome.NOTHING),
        (created(launch("abcdefgh"), 0.0), pane(), 50.0, takeover.TakeoverOutcome.FOUND),
        (ended, pane(), 50.0, takeover.TakeoverOutcome.FOUND),
    ],
    ids=[
        "runs on",
        "died meanwhile",
        "its pane was killed",
        "no server runs",
        "another server runs",
        "nobody knows when it started",
        "the machine was booted since",
        "nobody knows in which boot it started",
        "had ended before",
        "had ended before, and has no pane",
        "was lost before",
        "was lost and is there",
        "never ran",
        "runs, and nobody had the time to say so",
        "runs, though it was said to have ended",
    ],
)
def test_the_outcome_of_each_session(
    session: Session, facts: PaneFacts | None, server_started: float | None, expected: takeover.TakeoverOutcome
) -> None:
    assert expected is takeover.outcome_of(session, facts, server_started, TODAY)


def test_only_dead_panes_of_removed_sessions_are_ended() -> None:
    survey_result = takeover.TakeoverSurvey(
        (takeover.OrphanedSession(launch("abcdefgh"), runs()),), frozenset({"forgdead", "forglive"})
    )
    panes = {
        "abcdefgh": pane(),
        "forgdead": pane("forgdead", is_dead=True, number=2),
        "forglive": pane("forglive", number=3),
        "unknownn": pane("unknownn", is_dead=True, number=4),
    }
    dead, others = takeover.strays(survey_result, panes)

    assert ["forgdead"] == [facts.kasmon_id for facts in dead]
    assert ["forglive", "unknownn"] == [facts.kasmon_id for facts in others]


def test_the_survey_finds_every_tmux_session_that_is_not_removed() -> None:
    here = user_paths()
    here.make()
    for name, mode in (
        ("aaaaaaaa", Mode.TMUX),
        ("bbbbbbbb", Mode.SDK),
        ("cccccccc", Mode.TMUX),
        ("dddddddd", Mode.TMUX),
    ):
        here.folder(name).mkdir()
        write_private(here.launch(name), msgspec.json.encode(launch(name, mode)))
    write_private(here.launch("dddddddd"), b"{broken")
    here.folder("eeeeeeee").mkdir()
    (here.sessions / "a-file").touch()
    EventLog(here.log("aaaaaaaa")).append(SessionStarted(at=1.0, mode=Mode.TMUX, generation=3))
    EventLog(here.fleet_log).append(SessionForgotten(at=time.time(), session=SessionId("cccccccc")))
    survey_result = takeover.survey(here)

    assert [("aaaaaaaa", 3)] == [(left.launch.session, left.session.generation) for left in survey_result.left]
    assert {"cccccccc"} == survey_result.forgotten
