"""The state of a session's sandbox by its events: its runtime, its phase, its checkpoints, its usage.

| phase, intended | what a later host knows that finds it so |
|---|---|
| creating | nothing ran in it yet: its remains may be removed |
| pausing, resuming | its processes may be stopped or not; its memory is where it was |
| persisting | its files may be those of before or of after |
| expired | it is to be removed |
"""

from typing import Final, Literal

import msgspec

from kasmon.model import events
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxRuntime
from kasmon.model.session_state import SessionState

KEPT_CHECKPOINTS: Final = 50
"""How many checkpoints a session's value lists; the log has all."""
ASLEEP: Final = frozenset({SandboxPhase.PAUSING, SandboxPhase.PAUSED})
BEGINNING: Final = frozenset({SandboxPhase.CREATING, SandboxPhase.RESUMING, SandboxPhase.HEALING})


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe inside, compared with the sandbox's policy."""

    ok: bool
    mismatches: tuple[str, ...] = ()
    """The differences, each a few words."""
    at: float = 0.0


class SandboxUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox uses, and its limits; a limit of 0 means that none is enforced."""

    memory_bytes: int = 0
    memory_allowed: int = 0
    disk_bytes: int = 0
    disk_allowed: int = 0
    processes: int = 0
    processes_allowed: int = 0

    @property
    def is_full(self) -> bool:
        """Whether its files exceed the disk limit."""
        return 0 < self.disk_allowed < self.disk_bytes


class CheckpointSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint as shown in a list."""

    id: str
    turn: int
    when: Literal["before", "after", "asked"] = "after"
    at: float = 0.0
    commit: str = ""
    size_bytes: int = 0
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    what: str = ""


class SandboxState(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox of one session by its events alone; whether it still runs must be probed."""

    tier: LoggedTier = "jail"
    phase: SandboxPhase = SandboxPhase.CREATING
    is_intended: bool = True
    """The phase was begun, and is not known to have been reached."""
    phase_at: float = 0.0
    """Since when it is in that phase, or on the way to it, in seconds since the epoch."""
    runtime: SandboxRuntime | None = None
    generation: int = 0
    """The number of this sandbox in its session, counted from 1: each starts with empty memory."""
    turn: int = 0
    """The number of the session's turns."""
    held: bool = False
    """It is paused, and its processes hold their memory."""
    snapshot: str = ""
    """The file with its memory while it is paused, if there is one."""
    counters: dict[str, int] = {}
    """The number of runs of each interpreter when last queried; empty if it was not."""
    born_at: float = 0.0
    """When its first sandbox was made since the session began, or restarted after its end; in seconds since the epoch.
    The replacement of a lost sandbox does not change that."""
    used_at: float = 0.0
    """When a turn last began or ended in it, or it was created, resumed or used, in seconds since the epoch."""
    standby_at: float | None = None
    """When it enters standby if it stays unused."""
    pause_at: float | None = None
    """When it is paused, its memory on disk, if it stays unused."""
    expires_at: float | None = None
    """When it ends, because it stays unused or in any case; the earlier of the two."""
    why: str = ""
    lost: str = ""
    """The last loss, as one sentence; empty if nothing was ever lost."""
    lost_at: float = 0.0
    """When that was, in seconds since the epoch."""
    confinement: Confinement | None = None
    """None: not probed yet."""
    usage: SandboxUsage | None = None
    checkpoints: tuple[CheckpointSummary, ...] = ()
    """The latest ones, oldest first."""
    checkpoints_counted: int = 0

    @property
    def is_asleep(self) -> bool:
        """Whether it is known to be paused."""
        return self.phase is SandboxPhase.PAUSED or (self.phase is SandboxPhase.PERSISTING and not self.is_intended)


def apply_sandbox_event(current: SandboxState | None, event: events.Event) -> SandboxState | None:
    """Return *current* after *event*; None while the session has no sandbox. Pure."""
    match event:
        case events.SandboxPhaseChanged():
            return _apply_phase(current or SandboxState(), event)
        case events.ConfinementSeen():
            seen = Confinement(ok=event.ok, mismatches=event.mismatches, at=event.at)
            lives = current or SandboxState(tier=event.tier, born_at=event.at, used_at=event.at)
            if event.runtime is not None:  # a sandboxed agent has no other steps to this phase
                lives = msgspec.structs.replace(
                    lives, runtime=event.runtime, phase=SandboxPhase.RUNNING, is_intended=False
                )
            return msgspec.structs.replace(lives, confinement=seen if event.is_proven or not event.ok else None)
        case events.SessionStarted() if current is not None and event.mode is not Mode.INTERPRETER:
            return SandboxState(tier=current.tier, born_at=event.at, used_at=event.at)
        case events.SessionEnded() if current is not None and current.runtime is not None and current.runtime.front:
            return msgspec.structs.replace(
                current, phase=SandboxPhase.EXPIRED, is_intended=False, runtime=None, held=False
            )
        case events.Checkpointed() if current is not None:
            return _add_checkpoint(current, event)
        case events.SandboxMeasured() if current is not None:
            return msgspec.structs.replace(current, usage=msgspec.convert(event, SandboxUsage, from_attributes=True))
        case events.TurnStarted() if current is not None:
            return msgspec.structs.replace(current, turn=current.turn + 1, used_at=event.at, standby_at=None)
        case events.TurnEnded() if current is not None:
            return msgspec.structs.replace(current, used_at=event.at)
        case _:
            return current


def state_of(sandbox_state: SandboxState, *, in_turn: bool) -> SessionState | None:
    """Return the state of an interpreter session in that sandbox; None if its phase does not determine it."""
    if sandbox_state.phase in BEGINNING:
        return SessionState.STARTING
    if sandbox_state.phase in ASLEEP or sandbox_state.is_asleep:
        return SessionState.STANDBY if sandbox_state.held else SessionState.PAUSED
    if sandbox_state.phase is SandboxPhase.RUNNING:
        return SessionState.WORKING if in_turn else SessionState.IDLE
    if sandbox_state.phase is SandboxPhase.EXPIRED and not sandbox_state.is_intended:
        return SessionState.ENDED
    return None


def must_be_on_disk(event: events.Event) -> bool:
    """Whether *event* is an intent that must be on disk before its irreversible step.

    Freezing and thawing are reversible: if they are interrupted, the memory is complete.
    """
    return isinstance(event, events.SandboxPhaseChanged) and event.step == "intended" and not event.held


def is_news(current: SandboxUsage | None, event: events.SandboxMeasured) -> bool:
    """Whether *event* differs from *current* by 1/20 of the limit, or of the old value, or in being full."""
    if current is None or current.is_full is not msgspec.convert(event, SandboxUsage, from_attributes=True).is_full:
        return True
    figures = (
        (current.memory_bytes, event.memory_bytes, event.memory_allowed),
        (current.disk_bytes, event.disk_bytes, event.disk_allowed),
        (current.processes, event.processes, event.processes_allowed),
    )
    return any(abs(now - before) * 20 > (allowed or before or 1) for before, now, allowed in figures)


def _apply_phase(current: SandboxState, event: events.SandboxPhaseChanged) -> SandboxState:
    is_intended = event.step == "intended"
    is_over = event.phase is SandboxPhase.EXPIRED and not is_intended
    is_new = event.generation > current.generation
    is_first = is_new and (
        not current.generation or (current.phase is SandboxPhase.EXPIRED and not current.is_intended)
    )
    return msgspec.structs.replace(
        current,
        tier=event.tier,
        phase=event.phase,
        is_intended=is_intended,
        phase_at=current.phase_at if event.phase is current.phase and current.phase_at else event.at,
        runtime=None if is_over else event.runtime or (None if is_new else current.runtime),
        generation=max(event.generation, current.generation),
        held=event.held,
        snapshot=event.snapshot,
        counters={} if is_over else event.counters,
        born_at=event.at if is_first else current.born_at,
        used_at=event.at if is_new or event.phase is SandboxPhase.RESUMING else event.used_at or current.used_at,
        standby_at=event.standby_at,
        pause_at=None if is_over else event.pause_at,
        expires_at=None if is_over else event.expires_at,
        why=event.why,
        lost=event.lost or current.lost,
        lost_at=event.at if event.lost else current.lost_at,
        usage=None if is_new or is_over else current.usage,
        confinement=None if is_new or is_over else current.confinement,
    )


def _add_checkpoint(current: SandboxState, event: events.Checkpointed) -> SandboxState:
    kept = CheckpointSummary(
        id=event.checkpoint,
        turn=event.turn,
        when=event.when,
        at=event.at,
        commit=event.commit,
        size_bytes=event.size_bytes,
        kept=event.kept,
        lost=event.lost,
        what=event.what,
    )
    return msgspec.structs.replace(
        current,
        checkpoints=(*current.checkpoints, kept)[-KEPT_CHECKPOINTS:],
        checkpoints_counted=current.checkpoints_counted + 1,
    )
