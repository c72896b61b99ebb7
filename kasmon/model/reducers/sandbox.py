"""Sandbox events of a session: its sandbox, its process, and the state that follows from the sandbox's phase."""

from typing import Final

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.events import ConfinementSeen, Event, SandboxPhaseChanged, SessionStarted
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.reducers.session_requests import withdraw_all
from kasmon.model.sandbox.policy import SandboxPhase
from kasmon.model.sandbox.state import SandboxState, state_of
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

ASLEEP: Final = frozenset({SessionState.STANDBY, SessionState.PAUSED})


def apply_sandbox(before: Session, after: Session, sandbox_state: SandboxState | None, event: Event) -> Session:
    """Return *after* with its sandbox and process after *event*, and with the end reason if its sandbox is gone."""
    after = _with_sandbox(after, sandbox_state)
    if isinstance(event, ConfinementSeen) and event.pid is not None:
        after = msgspec.structs.replace(after, pid=event.pid, pid_started=event.pid_started)
    if isinstance(event, SandboxPhaseChanged) and after.mode is Mode.INTERPRETER:
        after = _with_sandbox_end(before, after, event)
    return after


def find_phase_state(before: Session, after: Session, event: Event) -> SessionState | None:
    """Return the state of an interpreter session by its sandbox's phase; None if that does not determine it."""
    if after.mode is not Mode.INTERPRETER or after.sandbox_state is None:
        return None
    if isinstance(event, SessionStarted):
        return state_of(after.sandbox_state, in_turn=False)
    if not isinstance(event, SandboxPhaseChanged):
        return None
    if before.state is SessionState.ENDED and event.phase is not SandboxPhase.CREATING:
        return SessionState.ENDED
    return state_of(after.sandbox_state, in_turn=after.in_turn)


def apply_pause(before: Session, after: Session, event: SandboxPhaseChanged) -> Session:
    """Return *after*, a sandboxed agent, after its sandbox was paused or resumed."""
    if (
        before.state in (SessionState.ENDED, SessionState.LOST)
        or event.step == "intended"
        or after.sandbox_state is None
    ):
        return after
    if after.sandbox_state.is_asleep:
        since = before.since if before.state in ASLEEP else event.at
        state = SessionState.STANDBY if after.sandbox_state.held else SessionState.PAUSED
        return msgspec.structs.replace(after, state=state, source="sandbox", since=since, recheck_at=None)
    if before.state not in ASLEEP:
        return after
    if after.mode is Mode.TMUX:
        return apply_verdict(after, event.at)
    return msgspec.structs.replace(after, state=SessionState.IDLE, source="protocol", since=event.at)


def is_timed_out(session: Session) -> bool:
    """Whether the sandbox of *session*, an agent in one, was to be ended by its expiry time."""
    sandbox_state = session.sandbox_state
    return sandbox_state is not None and sandbox_state.phase is SandboxPhase.EXPIRED and sandbox_state.is_intended


def _with_sandbox(session: Session, sandbox_state: SandboxState | None) -> Session:
    """Return *session* with *sandbox_state*; an interpreter session's process is that of its sandbox."""
    if sandbox_state is None:
        return session
    session = msgspec.structs.replace(session, sandbox_state=sandbox_state, sandbox=sandbox_state.tier)
    if session.mode is not Mode.INTERPRETER:
        return session
    runtime = sandbox_state.runtime
    if runtime is None or (sandbox_state.is_asleep and not sandbox_state.held):
        return msgspec.structs.replace(session, pid=None, pid_started=None, pid_boot="")
    return msgspec.structs.replace(
        session, pid=runtime.pid or None, pid_started=runtime.started or None, pid_boot=runtime.boot
    )


def _with_sandbox_end(before: Session, after: Session, event: SandboxPhaseChanged) -> Session:
    """Return *after* with the end reason if *event* reports that its sandbox is gone."""
    if event.phase is not SandboxPhase.EXPIRED or event.step == "intended" or before.state is SessionState.ENDED:
        return after
    was_made = before.sandbox_state is not None and before.sandbox_state.phase is not SandboxPhase.CREATING
    return msgspec.structs.replace(
        withdraw_all(after, "its sandbox is gone", event.at),
        end_why=event.why,
        exit_code=0 if was_made else None,
        stopped=event.why == "stopped",
    )
