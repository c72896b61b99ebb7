"""An agent inside a sandbox, as its facts tell: whose process it is, how it is confined, and that it sleeps."""

import pytest

from kasmon.model.commands import Launch, Mode
from kasmon.model.events import (
    ConfinementSeen,
    Event,
    SandboxPhaseChanged,
    SessionEnded,
    SessionStarted,
    SignalSeen,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.sandbox.policy import SandboxPhase, SandboxRuntime
from kasmon.model.session import Session, created
from kasmon.model.session_state import SessionState

ME = SessionId("abcdefgh")
SEEN = ConfinementSeen(at=3.0, ok=True, pid=44, pid_started=7.5, runtime=SandboxRuntime(pid=43, started=7.4, front=42))
ASLEEP = SandboxPhaseChanged(at=9.0, phase=SandboxPhase.PAUSED, held=True, generation=0)
AWAKE = SandboxPhaseChanged(at=11.0, phase=SandboxPhase.RUNNING, generation=0)
READS = SignalSeen(at=4.0, source="screen", value="idle", rule="prompt")
PRINTS = SignalSeen(at=10.0, source="screen", value="working")


def session(mode: Mode, *events: Event) -> Session:
    backend = "tmux" if mode is Mode.TMUX else "codex"
    now = created(Launch(session=ME, name="x", agent="codex", mode=mode, backend=backend, sandbox="jail"), 0.0)
    for event in (SessionStarted(at=2.0, generation=1, mode=mode, pid=42, pid_started=7.4), *events):
        now = apply(now, event)
    return now


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_its_process_is_the_guests_own_and_that_of_the_front_is_kept(mode: Mode) -> None:
    before, now = session(mode), session(mode, SEEN)

    assert (42, 44, 7.5) == (before.pid, now.pid, now.pid_started)
    assert now.sandbox_state is not None
    assert now.sandbox_state.runtime is not None
    assert (42, 43) == (now.sandbox_state.runtime.front, now.sandbox_state.runtime.pid)
    assert now.sandbox_state.confinement is not None
    assert ("running", True) == (now.phase, now.sandbox_state.confinement.ok)


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_it_is_paused_until_it_is_resumed_whatever_its_screen_shows(mode: Mode) -> None:
    asleep = session(mode, READS, SEEN, ASLEEP, PRINTS)
    awake = apply(apply(asleep, AWAKE), SignalSeen(at=12.0, source="screen", value="idle"))

    assert (SessionState.STANDBY, "sandbox", 9.0, "paused") == (asleep.state, asleep.source, asleep.since, asleep.phase)
    assert None is asleep.recheck_at
    assert (SessionState.IDLE, "running", 44) == (awake.state, awake.phase, awake.pid)
    assert awake.sandbox_state is not None
    assert awake.sandbox_state.runtime is not None


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_on_disk_it_is_paused_to_disk_and_continues_where_it_is_restored(mode: Mode) -> None:
    """From memory it goes there by being awake; what stood in front of it is the same process all the while."""
    on_disk = SandboxPhaseChanged(at=12.0, phase=SandboxPhase.PAUSED, generation=0, tier="microvm", snapshot="abc")
    elsewhere = SandboxRuntime(pid=53, started=12.5, front=42)
    woken = SandboxPhaseChanged(at=14.0, phase=SandboxPhase.RUNNING, generation=0, tier="microvm", runtime=elsewhere)
    paused = session(mode, READS, SEEN, ASLEEP, AWAKE, on_disk, PRINTS)
    awake = apply(paused, woken)

    assert (SessionState.PAUSED, "sandbox", 12.0, "paused") == (paused.state, paused.source, paused.since, paused.phase)
    assert (SessionState.PAUSED, 12.0) == (apply(paused, on_disk).state, apply(paused, on_disk).since)
    assert paused.sandbox_state is not None
    assert ("abc", False, "microvm") == (paused.sandbox_state.snapshot, paused.sandbox_state.held, paused.sandbox)
    assert awake.sandbox_state is not None
    assert (elsewhere, "running") == (awake.sandbox_state.runtime, awake.phase)
    assert SessionState.PAUSED is not awake.state


def test_a_turn_after_a_resume_is_work() -> None:
    assert SessionState.WORKING is session(Mode.SDK, SEEN, ASLEEP, AWAKE, TurnStarted(at=12.0)).state
    turn = (TurnStarted(at=4.0), TurnEnded(at=5.0, reason="done"))
    assert SessionState.STANDBY is session(Mode.SDK, SEEN, *turn, ASLEEP).state


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_its_end_is_that_of_its_sandbox_and_the_next_agent_is_examined_again(mode: Mode) -> None:
    ended = session(mode, SEEN, ASLEEP, SessionEnded(at=20.0, exit_code=0))
    again = apply(ended, SessionStarted(at=30.0, generation=2, mode=mode, pid=52))

    assert (SessionState.ENDED, "expired") == (ended.state, ended.phase)
    assert ended.sandbox_state is not None
    assert None is ended.sandbox_state.runtime
    assert again.sandbox_state is not None
    assert (None, None, 52) == (again.sandbox_state.confinement, again.sandbox_state.runtime, again.pid)
    assert SessionState.STANDBY is not again.state
    assert SessionState.ENDED is apply(ended, ASLEEP).state


@pytest.mark.parametrize("mode", [Mode.TMUX, Mode.SDK])
def test_an_end_by_the_timer_is_no_crash_and_an_end_by_itself_may_be_one(mode: Mode) -> None:
    to_end = SandboxPhaseChanged(
        at=19.0, phase=SandboxPhase.EXPIRED, step="intended", generation=0, why="not used for 30 min"
    )
    killed = SessionEnded(at=20.0, signal="SIGHUP", why="not used for 30 min")
    ended, crashed = session(mode, READS, SEEN, to_end, killed), session(mode, READS, SEEN, killed)

    assert (SessionState.ENDED, True, False) == (ended.state, ended.timed_out, ended.crashed)
    assert (False, True) == (crashed.timed_out, crashed.crashed)
    assert not apply(ended, SessionStarted(at=30.0, generation=2, mode=mode, pid=52)).timed_out


@pytest.mark.parametrize("step", [SandboxPhase.PAUSING, SandboxPhase.RESUMING])
def test_an_intended_step_changes_no_state(step: SandboxPhase) -> None:
    going = SandboxPhaseChanged(at=9.0, phase=step, step="intended", held=True, generation=0)

    assert SessionState.IDLE is session(Mode.TMUX, SEEN, READS, going).state
    assert SessionState.STANDBY is session(Mode.TMUX, SEEN, READS, ASLEEP, going).state


def test_its_lifetime_starts_with_its_sandbox_and_use_is_counted_from_the_logged_time() -> None:
    known = session(Mode.SDK, SEEN).sandbox_state
    used = session(
        Mode.SDK, SEEN, SandboxPhaseChanged(at=9.0, phase=SandboxPhase.RUNNING, generation=0, used_at=8.0)
    ).sandbox_state
    again = session(
        Mode.SDK, SEEN, SessionEnded(at=20.0), SessionStarted(at=30.0, generation=2, mode=Mode.SDK)
    ).sandbox_state

    assert known is not None
    assert used is not None
    assert again is not None
    assert (3.0, 3.0) == (known.born_at, known.used_at)
    assert (3.0, 8.0) == (used.born_at, used.used_at)
    assert (30.0, 30.0) == (again.born_at, again.used_at)
