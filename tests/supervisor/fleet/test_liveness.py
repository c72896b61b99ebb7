"""What is shown, from what the facts say and who was seen alive."""

import msgspec
import pytest

from kasmon.model import events
from kasmon.model.commands import Mode
from kasmon.model.evidence import SETTLE_S
from kasmon.model.permission import Request, RequestId, RequestKind, SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.sandbox.policy import SandboxPhase, SandboxRuntime
from kasmon.model.session import HostProbe, Session, created
from kasmon.model.session_state import SessionState
from kasmon.supervisor.fleet.liveness import (
    AGENT_ALIVE,
    AGENT_UNKNOWN,
    FOLDER_GONE,
    NEVER_STARTED,
    SANDBOX_ALIVE,
    SANDBOX_GONE,
    START_S,
    UNWRITTEN,
    Liveness,
    derive,
)
from tests.support.supervisor.env import NOW, ended, launch, started

HOSTED = Liveness(host=77)
NOBODY = Liveness(written_at=NOW + 5)
ONLY_AGENT = Liveness(agent_runs=True, written_at=NOW + 5)
ASKS = events.RequestOpened(
    at=NOW + 3, request=Request(id=RequestId("abcdefgh-1"), session=SessionId("abcdefgh"), kind=RequestKind.PERMISSION)
)


def folded(*facts: events.Event, mode: Mode = Mode.SDK) -> Session:
    session = created(launch("abcdefgh", mode=mode), NOW)
    for fact in facts:
        session = apply(session, fact)
    return session


def working(mode: Mode = Mode.SDK) -> Session:
    printing = events.SignalSeen(at=NOW + 1, source="output", value="printing")
    return folded(started(mode=mode), printing if mode is Mode.TMUX else events.TurnStarted(at=NOW + 1), mode=mode)


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
def test_with_its_host_alive_a_session_has_the_state_of_its_events(mode: Mode) -> None:
    session = working(mode)

    shown = derive(session, HOSTED, NOW + 9)

    assert SessionState.WORKING is shown.state
    assert HostProbe(pid=77, alive=True) == shown.host


def test_a_terminal_whose_sources_disagree_for_too_long_is_unsure_without_a_new_event() -> None:
    session = folded(
        started(mode=Mode.TMUX),
        events.SignalSeen(at=NOW + 1, source="registry", value="working"),
        events.SignalSeen(at=NOW + 2, source="screen", value="idle"),
        mode=Mode.TMUX,
    )

    assert SessionState.WORKING is derive(session, HOSTED, NOW + 2 + SETTLE_S - 0.1).state
    shown = derive(session, HOSTED, NOW + 60)
    assert (SessionState.UNSURE, NOW + 2 + SETTLE_S) == (shown.state, shown.since)


def test_a_host_without_an_identity_counts_as_alive() -> None:
    assert HostProbe(pid=None, alive=True) == derive(working(), Liveness(host=0), NOW + 9).host


@pytest.mark.parametrize("session", [folded(started()), working(), folded()], ids=["idle", "working", "starting"])
def test_while_the_disk_is_full_the_state_of_a_session_is_unsure(session: Session) -> None:
    shown = derive(session, Liveness(host=77, write_problem="No space left on device"), NOW + 9)

    assert (SessionState.UNSURE, f"{UNWRITTEN}: No space left on device") == (shown.state, shown.unsure_why)
    assert shown.host is not None
    assert shown.host.alive


def test_a_session_whose_folder_is_gone_is_lost_at_once() -> None:
    shown = derive(folded(), Liveness(is_folder_missing=True), NOW + 1)

    assert (SessionState.LOST, FOLDER_GONE) == (shown.state, shown.end_why)


def test_while_the_disk_is_full_an_open_request_can_be_answered() -> None:
    asking = folded(started(), events.TurnStarted(at=NOW + 1), ASKS)

    shown = derive(asking, Liveness(host=77, write_problem="No space left on device"), NOW + 9)

    assert (SessionState.ASKING, asking.requests) == (shown.state, shown.requests)


def test_a_structured_session_without_host_is_unsure_while_its_agent_runs_and_has_no_open_request() -> None:
    session = apply(folded(events.SessionStarted(at=NOW, pid=4711), events.TurnStarted(at=NOW + 1)), ASKS)

    shown = derive(session, ONLY_AGENT, NOW + 9)

    assert (SessionState.UNSURE, "its host is gone, its agent still runs (pid 4711)") == (shown.state, shown.unsure_why)
    assert (None, ()) == (shown.asking, shown.requests)
    assert shown.is_orphaned
    assert not derive(session, HOSTED, NOW + 9).is_orphaned


def test_a_structured_session_without_host_and_agent_is_lost() -> None:
    shown = derive(working(), NOBODY, NOW + 9)

    assert SessionState.LOST is shown.state
    assert "host is gone" in shown.end_why
    assert HostProbe(pid=None, alive=False) == shown.host


def sandboxed(phase: SandboxPhase, *, held: bool = True) -> Session:
    runtime = SandboxRuntime(pid=41, started=7.5, boot="b1")
    return folded(
        events.SandboxPhaseChanged(at=NOW, phase=SandboxPhase.CREATING, runtime=runtime),
        started(mode=Mode.INTERPRETER),
        events.SandboxPhaseChanged(at=NOW + 1, phase=phase, held=held),
        mode=Mode.INTERPRETER,
    )


@pytest.mark.parametrize("phase", [SandboxPhase.RUNNING, SandboxPhase.PAUSED, SandboxPhase.HEALING])
def test_a_sandbox_that_outlives_its_host_is_unsure_and_one_that_does_not_is_lost(phase: SandboxPhase) -> None:
    alive, gone = derive(sandboxed(phase), ONLY_AGENT, NOW + 9), derive(sandboxed(phase), NOBODY, NOW + 9)

    assert (SessionState.UNSURE, SANDBOX_ALIVE) == (alive.state, alive.unsure_why)
    assert (SessionState.LOST, SANDBOX_GONE) == (gone.state, gone.end_why)


def test_a_sandbox_paused_on_disk_needs_no_host() -> None:
    assert SessionState.PAUSED is derive(sandboxed(SandboxPhase.PAUSED, held=False), NOBODY, NOW + 9).state


def test_a_terminal_without_host_is_lost_if_its_agent_is_gone_and_unsure_if_it_lives_or_is_unknown() -> None:
    assert SessionState.LOST is derive(working(Mode.TMUX), NOBODY, NOW + 9).state

    shown = derive(working(Mode.TMUX), ONLY_AGENT, NOW + 9)
    assert (SessionState.UNSURE, AGENT_ALIVE) == (shown.state, shown.unsure_why)

    session = folded(events.SessionStarted(at=NOW, mode=Mode.TMUX, pid=None), mode=Mode.TMUX)
    assert (SessionState.UNSURE, AGENT_UNKNOWN) == ((shown := derive(session, NOBODY, NOW + 9)).state, shown.unsure_why)


@pytest.mark.parametrize("seen", [HOSTED, NOBODY, ONLY_AGENT], ids=["hosted", "nobody", "only the agent"])
@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
def test_an_ended_session_stays_ended_whatever_runs(mode: Mode, seen: Liveness) -> None:
    session = folded(started(mode=mode), ended(), mode=mode)

    assert derive(session, seen, NOW + 9) is session


@pytest.mark.parametrize("mode", [Mode.SDK, Mode.TMUX])
@pytest.mark.parametrize("seen", [NOBODY, ONLY_AGENT], ids=["nobody", "only the agent"])
def test_without_its_host_no_session_is_idle(mode: Mode, seen: Liveness) -> None:
    idle = events.SignalSeen(at=NOW + 1, source="program", value="idle")
    session = folded(started(mode=mode), *([idle] if mode is Mode.TMUX else []), mode=mode)
    assert SessionState.IDLE is session.state

    assert SessionState.IDLE is not derive(session, seen, NOW + 9).state


def test_a_terminal_whose_tmux_server_is_gone_is_lost_although_its_host_lives() -> None:
    session = apply(working(Mode.TMUX), events.ConnectionLost(at=NOW + 4, what="tmux server"))

    shown = derive(session, HOSTED, NOW + 9)

    assert (SessionState.LOST, NOW + 4) == (shown.state, shown.since)
    assert shown.end_why


def test_the_requests_of_a_lost_session_are_void() -> None:
    asking = folded(started(), events.TurnStarted(at=NOW + 1), ASKS)
    assert (1, RequestKind.PERMISSION) == (len(asking.requests), asking.asking)

    shown = derive(asking, NOBODY, NOW + 9)

    assert ((), None) == (shown.requests, shown.asking)
    assert () == derive(apply(asking, events.ConnectionLost(at=NOW + 4, what="remote line")), HOSTED, NOW + 9).requests


def test_a_lost_session_is_lost_since_its_last_event() -> None:
    assert NOW + 5 == derive(working(), NOBODY, NOW + 900).since


@pytest.mark.parametrize("age", [-START_S + 0.1, 0.0, START_S - 0.1])
def test_a_session_without_a_host_is_starting_for_a_while(age: float) -> None:
    assert SessionState.STARTING is derive(folded(), Liveness(), NOW + age).state


@pytest.mark.parametrize("age", [START_S, 3600.0, -3600.0], ids=["a while later", "an hour later", "clock set back"])
def test_a_session_that_never_gets_a_host_is_lost(age: float) -> None:
    shown = derive(folded(), Liveness(), NOW + age)

    assert (SessionState.LOST, NEVER_STARTED) == (shown.state, shown.end_why)


def test_a_session_whose_host_takes_long_to_start_its_agent_is_starting() -> None:
    assert SessionState.STARTING is derive(folded(), HOSTED, NOW + 3600).state


@pytest.mark.parametrize("ahead_s", [86400.0, -86400.0, 7.0])
def test_the_times_of_a_machine_whose_clock_is_off_are_those_of_the_clock_here(ahead_s: float) -> None:
    asking = folded(started(), events.TurnStarted(at=NOW + 1), ASKS)
    here = msgspec.structs.replace(
        derive(asking, HOSTED, NOW + 9 + ahead_s),
        since=NOW + 3 - ahead_s,
        requests=tuple(msgspec.structs.replace(ask, asked_at=ask.asked_at - ahead_s) for ask in asking.requests),
    )

    assert here == derive(asking, HOSTED._replace(clock_offset_s=ahead_s), NOW + 9)
    assert NOW + 5 - ahead_s == derive(working(), NOBODY._replace(clock_offset_s=ahead_s), NOW + 9).since


@pytest.mark.parametrize("ahead_s", [86400.0, -86400.0])
def test_with_a_wrong_clock_a_timed_change_of_state_happens_as_elsewhere(ahead_s: float) -> None:
    session = folded(
        started(mode=Mode.TMUX),
        events.SignalSeen(at=NOW + 1, source="registry", value="working"),
        events.SignalSeen(at=NOW + 2, source="screen", value="idle"),
        mode=Mode.TMUX,
    )
    seen = HOSTED._replace(clock_offset_s=ahead_s)

    assert SessionState.WORKING is derive(session, seen, NOW - ahead_s + 2 + SETTLE_S - 0.1).state
    shown = derive(session, seen, NOW - ahead_s + 60)
    assert (SessionState.UNSURE, NOW - ahead_s + 2 + SETTLE_S) == (shown.state, shown.since)


def test_an_unreachable_machine_is_so_since_a_time_of_the_clock_here() -> None:
    seen = Liveness(unreachable="a cut", unreachable_since=NOW + 7, clock_offset_s=86400.0)

    assert NOW + 7 == derive(working(), seen, NOW + 9).since
