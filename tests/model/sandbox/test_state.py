"""What the facts of a session say of its sandbox, and of the session's state by that."""

import msgspec
import pytest

from kasmon.model.commands import Launch, Mode
from kasmon.model.events import (
    Checkpointed,
    ConfinementSeen,
    Event,
    SandboxMeasured,
    SandboxPhaseChanged,
    SessionEnded,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import SessionId
from kasmon.model.reducers.apply import apply
from kasmon.model.sandbox.policy import SandboxPhase, SandboxRuntime
from kasmon.model.sandbox.state import Confinement, SandboxState, apply_sandbox_event, must_be_on_disk
from kasmon.model.session import Session, created
from kasmon.model.session_state import SessionState

ME = SessionId("abcdefgh")
RUNTIME = SandboxRuntime(pid=41, started=7.5, boot="b1", socket="/run/s")


def session(*events: Event) -> Session:
    launch = Launch(
        session=ME, name="lab", agent="interpreters", mode=Mode.INTERPRETER, backend="interpreter", sandbox="jail"
    )
    now = created(launch, 0.0)
    for event in events:
        now = apply(now, event)
    return now


def moved(phase: SandboxPhase, at: float = 1.0, *, intended: bool = False, **more: object) -> SandboxPhaseChanged:
    fact = SandboxPhaseChanged(at=at, phase=phase, step="intended" if intended else "confirmed")
    return msgspec.structs.replace(fact, **more)


MADE = (
    moved(SandboxPhase.CREATING, intended=True),
    moved(SandboxPhase.CREATING, runtime=RUNTIME),
    moved(SandboxPhase.RUNNING),
    SessionStarted(at=2.0, mode=Mode.INTERPRETER, pid=41, pid_started=7.5, pid_boot="b1"),
)


def test_a_session_with_a_requested_sandbox_shows_it_before_any_event() -> None:
    assert "jail" == session().sandbox
    assert session().sandbox_state is None


@pytest.mark.parametrize(
    ("phase", "held", "state"),
    [
        (SandboxPhase.CREATING, False, SessionState.STARTING),
        (SandboxPhase.RUNNING, False, SessionState.IDLE),
        (SandboxPhase.PAUSING, True, SessionState.STANDBY),
        (SandboxPhase.PAUSING, False, SessionState.PAUSED),
        (SandboxPhase.PAUSED, True, SessionState.STANDBY),
        (SandboxPhase.PAUSED, False, SessionState.PAUSED),
        (SandboxPhase.RESUMING, True, SessionState.STARTING),
        (SandboxPhase.HEALING, False, SessionState.STARTING),
        (SandboxPhase.EXPIRED, False, SessionState.ENDED),
    ],
)
def test_the_state_of_an_interpreter_session_follows_from_its_sandboxs_phase(
    phase: SandboxPhase, held: bool, state: SessionState
) -> None:
    now = session(*MADE, moved(phase, held=held))

    assert (phase.value, state) == (now.phase, now.state)


def test_a_checkpoint_changes_no_state_and_only_the_end_that_was_reached_is_the_sessions() -> None:
    works = session(*MADE, TurnStarted(at=3.0), moved(SandboxPhase.PERSISTING, intended=True, held=True))
    assert SessionState.WORKING is works.state
    assert SessionState.WORKING is apply(works, moved(SandboxPhase.RUNNING)).state

    assert SessionState.IDLE is session(*MADE, moved(SandboxPhase.EXPIRED, intended=True)).state


def test_a_lost_sandbox_gives_the_reason_before_its_session_does() -> None:
    """Its host may die in between."""
    over = session(*MADE, moved(SandboxPhase.EXPIRED, why="not used for 30 min"))
    never = session(moved(SandboxPhase.CREATING, intended=True), moved(SandboxPhase.EXPIRED, why="there is no room"))

    assert (SessionState.ENDED, "not used for 30 min", False) == (over.state, over.end_why, over.crashed)
    assert (SessionState.ENDED, "there is no room", True) == (never.state, never.end_why, never.crashed)


def test_after_its_end_only_a_new_sandbox_restores_a_session() -> None:
    ended = session(*MADE, SessionEnded(at=4.0, exit_code=0), moved(SandboxPhase.EXPIRED))

    assert SessionState.ENDED is apply(ended, moved(SandboxPhase.RUNNING)).state
    assert SessionState.STARTING is apply(ended, moved(SandboxPhase.CREATING, intended=True, generation=2)).state


def test_one_found_asleep_stays_asleep_and_has_the_sandboxs_process_but_on_disk_none() -> None:
    asleep = session(*MADE, moved(SandboxPhase.PAUSED, held=True))
    assert SessionState.STANDBY is apply(asleep, SessionStarted(at=9.0, mode=Mode.INTERPRETER, pid=41)).state

    assert (41, 7.5, "b1") == (lambda now: (now.pid, now.pid_started, now.pid_boot))(session(*MADE))
    assert session(*MADE, moved(SandboxPhase.PAUSED, held=False)).pid is None
    assert 41 == session(*MADE, moved(SandboxPhase.PAUSED, held=True)).pid


def test_an_agent_that_works_in_a_sandbox_keeps_its_own_state_and_process() -> None:
    launch = Launch(session=ME, name="fix", agent="claude", mode=Mode.SDK, backend="claude", sandbox="jail")
    now = created(launch, 0.0)
    for event in (SessionStarted(at=1.0, pid=7), TurnStarted(at=2.0), moved(SandboxPhase.CREATING, runtime=RUNTIME)):
        now = apply(now, event)

    assert (SessionState.WORKING, 7, "creating") == (now.state, now.pid, now.phase)


def test_use_is_when_a_turn_begins_or_ends() -> None:
    now = session(*MADE, TurnStarted(at=50.0), TurnEnded(at=60.0))

    assert now.sandbox_state is not None
    assert (60.0, 1) == (now.sandbox_state.used_at, now.sandbox_state.turn)


def test_one_in_the_place_of_a_lost_one_has_no_longer_life_and_one_begun_again_its_own() -> None:
    lost = session(*MADE, moved(SandboxPhase.CREATING, at=500.0, intended=True, generation=2))
    assert lost.sandbox_state is not None
    assert (1.0, 500.0) == (lost.sandbox_state.born_at, lost.sandbox_state.used_at)

    again = session(
        *MADE, moved(SandboxPhase.EXPIRED), moved(SandboxPhase.CREATING, at=500.0, intended=True, generation=2)
    )
    assert again.sandbox_state is not None
    assert (500.0, None) == (again.sandbox_state.born_at, again.sandbox_state.runtime)


def test_an_earlier_loss_is_reported_later() -> None:
    now = session(*MADE, moved(SandboxPhase.RUNNING, lost="its variables are lost"), moved(SandboxPhase.RUNNING))

    assert now.sandbox_state is not None
    assert "its variables are lost" == now.sandbox_state.lost


def test_a_proof_and_figures_belong_to_one_sandbox_and_are_dropped_with_it() -> None:
    seen = session(*MADE, ConfinementSeen(at=5.0, ok=True), SandboxMeasured(at=5.0, memory_bytes=9))
    assert seen.sandbox_state is not None
    assert seen.sandbox_state.confinement is not None
    assert seen.sandbox_state.usage is not None

    another = apply(seen, moved(SandboxPhase.CREATING, intended=True, generation=2)).sandbox_state

    assert another is not None
    assert (None, None) == (another.confinement, another.usage)


def test_a_sandbox_that_cannot_be_examined_exists_and_is_unproven_unless_it_is_gone() -> None:
    there = session(*MADE, ConfinementSeen(at=5.0, ok=True, is_proven=False, runtime=SandboxRuntime(front=7)))
    gone = session(*MADE, ConfinementSeen(at=5.0, ok=False, is_proven=False, mismatches=("its sandbox is gone",)))

    assert there.sandbox_state is not None
    assert (None, 7) == (
        there.sandbox_state.confinement,
        there.sandbox_state.runtime.front if there.sandbox_state.runtime else 0,
    )
    assert gone.sandbox_state is not None
    assert gone.sandbox_state.confinement == Confinement(ok=False, mismatches=("its sandbox is gone",), at=5.0)


def test_the_newest_checkpoints_are_named_and_all_are_counted() -> None:
    kept = session(*MADE, *(Checkpointed(at=6.0, checkpoint=f"c{n}", turn=n) for n in range(60)))

    assert kept.sandbox_state is not None
    assert (60, 50, "c59") == (
        kept.sandbox_state.checkpoints_counted,
        len(kept.sandbox_state.checkpoints),
        kept.sandbox_state.checkpoints[-1].id,
    )


def test_events_of_a_session_without_a_sandbox_are_ignored() -> None:
    assert apply_sandbox_event(None, TurnStarted(at=1.0)) is None
    assert apply_sandbox_event(None, Checkpointed(at=1.0, checkpoint="c1")) is None


@pytest.mark.parametrize(
    ("fact", "wanted"),
    [
        (moved(SandboxPhase.CREATING, intended=True), True),
        (moved(SandboxPhase.EXPIRED, intended=True), True),
        (moved(SandboxPhase.PAUSING, intended=True, held=True), False),
        (moved(SandboxPhase.RESUMING, intended=True, held=True), False),
        (moved(SandboxPhase.RUNNING), False),
        (TurnStarted(at=1.0), False),
    ],
)
def test_only_intents_that_cannot_be_undone_wait_for_the_disk(fact: Event, wanted: bool) -> None:
    assert wanted is must_be_on_disk(fact)


def test_a_sandbox_is_paused_once_that_was_confirmed() -> None:
    assert not SandboxState(phase=SandboxPhase.PAUSING, held=True).is_asleep
    assert SandboxState(phase=SandboxPhase.PERSISTING, is_intended=False, held=True).is_asleep
    assert not SandboxState(phase=SandboxPhase.PERSISTING, is_intended=True).is_asleep
