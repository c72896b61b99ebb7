"""The event journal of one sandbox, and the sandbox state that the events add up to."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.events import ConfinementSeen, Event, NoticeRaised, SandboxMeasured, SandboxPhaseChanged
from kasmon.model.sandbox.policy import LoggedTier, SandboxPhase, SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.state import SandboxState, apply_sandbox_event, is_news
from kasmon.sandbox.base import (
    ConfinementTier,
    HostedTier,
    LocalSnapshotTier,
    OwnKernelTier,
    RecordTier,
    SandboxTier,
    UsageTier,
)
from kasmon.sandbox.managed.idle_policy import LifetimeTerms, deadlines
from kasmon.sandbox.remote_guest.proof import seen


class SandboxJournal:
    """The events of one sandbox. `note` records one; an intent is on disk when it returns."""

    def __init__(
        self,
        state: SandboxState | None,
        write: Callable[[Event], None],
        *,
        tier: LoggedTier,
        keeps_memory: bool,
        terms: LifetimeTerms,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            state: the state after the events so far.
            write: records an event; if it raises, nothing was recorded.
            tier: the sandbox's tier.
            keeps_memory: whether it can be paused to disk.
            terms: its time limits.
            clock: returns the time.
        """
        self.sandbox_state = state or SandboxState(phase=SandboxPhase.EXPIRED, is_intended=False, tier=tier)
        self.clock = clock
        self._lock = threading.Lock()
        self._noticed: set[str] = set()
        self._write = write
        self._tier = tier
        self._keeps_memory = keeps_memory
        self._terms = terms

    def note(self, event: Event) -> None:
        """Record *event* and apply it to the state."""
        self._write(event)
        self.apply(event)

    def apply(self, event: Event) -> None:
        """Apply *event*, which is recorded already."""
        with self._lock:
            self.sandbox_state = apply_sandbox_event(self.sandbox_state, event) or self.sandbox_state

    def move(
        self,
        phase: SandboxPhase,
        *,
        intended: bool = False,
        runtime: SandboxRuntime | None = None,
        generation: int | None = None,
        held: bool = False,
        snapshot: str = "",
        counters: Mapping[str, int] | None = None,
        lost: str = "",
        why: str = "",
        is_used: bool = False,
        used_at: float | None = None,
    ) -> None:
        """Record that the sandbox enters *phase*, or is in it.

        *is_used*: a turn begins or ends about now. *used_at*: when it was last used, if no turn shows that.
        """
        at, known = self.clock(), self.sandbox_state
        moved = SandboxPhaseChanged(
            at=at,
            phase=phase,
            step="intended" if intended else "confirmed",
            tier=self._tier,
            runtime=runtime,
            generation=known.generation if generation is None else generation,
            turn=known.turn,
            held=held,
            snapshot=snapshot,
            counters=dict(known.counters if counters is None else counters),
            used_at=used_at,
            lost=lost,
            why=why,
        )
        then = apply_sandbox_event(known, moved) or known
        if is_used:
            then = msgspec.structs.replace(then, used_at=at)
        is_on_disk = phase is SandboxPhase.PAUSED and not held
        to_come = deadlines(then, self._terms, keeps_memory=self._keeps_memory, is_on_disk=is_on_disk)
        self.note(
            msgspec.structs.replace(
                moved,
                standby_at=None if phase is SandboxPhase.PAUSED else to_come.standby_at,
                pause_at=to_come.pause_at,
                expires_at=to_come.expires_at,
            )
        )

    def add_notice(self, text: str, *, is_warning: bool = True) -> None:
        self.note(NoticeRaised(at=self.clock(), text=text, level="warning" if is_warning else "info"))

    def add_notice_once(self, *texts: str) -> None:
        """Record each of *texts* as a notice, unless this journal recorded it before."""
        for text in texts:
            if text not in self._noticed:
                self._noticed.add(text)
                self.add_notice(text)


COPIED: Final = "forked with memory"


def measure(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> None:
    """Record the sandbox's usage if it has changed enough. Raises `KasmonError` or `OSError` if it cannot be read."""
    runtime = journal.sandbox_state.runtime
    if not isinstance(tier, UsageTier) or runtime is None:
        return
    used = tier.usage(policy, runtime)
    fact = SandboxMeasured(
        at=journal.clock(),
        memory_bytes=used.memory_bytes,
        memory_allowed=used.allowed.memory_bytes,
        disk_bytes=used.disk_bytes,
        disk_allowed=used.allowed.disk_bytes,
        processes=used.processes,
        processes_allowed=used.allowed.processes,
    )
    if is_news(journal.sandbox_state.usage, fact):
        journal.note(fact)


def prove(tier: SandboxTier, policy: SandboxPolicy, runtime: SandboxRuntime, journal: SandboxJournal) -> None:
    """Record whether the sandbox at *runtime* is confined as *policy* requires; not, if it cannot be checked."""
    if isinstance(tier, ConfinementTier):
        try:
            proof = tier.prove(policy, runtime.pid)
            ok, mismatches = proof.ok, tuple(proof.mismatches)
        except KasmonError as error:
            ok, mismatches = False, (error.message,)
    elif isinstance(tier, OwnKernelTier):
        found = seen(runtime)
        if found is None:
            return
        ok, mismatches = found
    else:
        return
    journal.note(ConfinementSeen(at=journal.clock(), tier=policy.tier, ok=ok, mismatches=mismatches))


def adopt_forked_snapshot(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> bool:
    """Whether a forked snapshot was prepared for it; it is then recorded as paused on that."""
    judged = tier.check_snapshot(policy) if isinstance(tier, LocalSnapshotTier) else None
    if judged is None:
        return False
    journal.move(SandboxPhase.PAUSED, runtime=SandboxRuntime(), generation=1, snapshot=judged.snapshot.id, why=COPIED)
    return True


def adopt_unrecorded_snapshot(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> bool:
    """Whether its memory is on disk although that is not recorded; records it."""
    known = journal.sandbox_state
    if known.phase not in (SandboxPhase.PAUSING, SandboxPhase.RESUMING) or not isinstance(tier, RecordTier):
        return False
    if tier.adopt(policy) is not None or (snapshot := tier.kept(policy)) is None:
        return False
    journal.move(SandboxPhase.PAUSED, snapshot=snapshot.id, why=known.why)
    return True


def adopt_unrecorded_runtime(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> bool:
    """Whether it runs elsewhere than was recorded; records it."""
    known, runtime = journal.sandbox_state, tier.adopt(policy) if isinstance(tier, RecordTier) else None
    if runtime is None:
        return False
    journal.move(known.phase, intended=known.is_intended, runtime=runtime, held=known.held, why=known.why)
    return True


def sleeps_on_disk(tier: SandboxTier, policy: SandboxPolicy) -> bool:
    """Whether it runs nowhere and its snapshot can be resumed as before; false if that is stored elsewhere."""
    if isinstance(tier, HostedTier) or not isinstance(tier, RecordTier):
        return False
    return tier.adopt(policy) is None and tier.kept(policy) is not None
