"""Events from what a tier reports: resource usage, confinement, and sandboxes and snapshots that no event records."""

from typing import Final

from kasmon.errors import KasmonError
from kasmon.model.events import ConfinementSeen, SandboxMeasured
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.state import is_news
from kasmon.sandbox.base import (
    ConfinementTier,
    HostedTier,
    LocalSnapshotTier,
    OwnKernelTier,
    RecordTier,
    SandboxTier,
    UsageTier,
)
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.remote_guest.proof import seen

COPIED: Final = "forked with memory"


def measure(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> None:
    """Record the sandbox's usage if it has changed enough.

    Raises:
        KasmonError, OSError: if it cannot be read.
    """
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
