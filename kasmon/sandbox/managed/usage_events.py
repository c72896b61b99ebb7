"""Record a sandbox's resource usage and confinement as events, if its tier can report them."""

from kasmon.errors import KasmonError
from kasmon.model.events import ConfinementSeen, SandboxMeasured
from kasmon.model.sandbox.policy import SandboxPolicy, SandboxRuntime
from kasmon.model.sandbox.state import is_news
from kasmon.sandbox.base import ConfinementTier, OwnKernelTier, SandboxTier, UsageTier
from kasmon.sandbox.managed.journal import SandboxJournal
from kasmon.sandbox.remote_guest.proof import seen


def measure(tier: SandboxTier, policy: SandboxPolicy, journal: SandboxJournal) -> None:
    """Record the sandbox's usage if it has changed enough.

    Raises:
        KasmonError, OSError: if it cannot be read.
    """
    runtime = journal.housing.runtime
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
    if is_news(journal.housing.usage, fact):
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
