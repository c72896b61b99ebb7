"""What a sandbox uses and how it is confined, noted as facts where its tier can tell."""

from kasmon.errors import KasmonError
from kasmon.model.event import ConfinementSeen, SandboxMeasured
from kasmon.model.housing import is_news
from kasmon.model.sandbox import Policy, Runtime
from kasmon.sandbox.base import Measured, Proving, Sandbox, Walled
from kasmon.sandbox.far.proof import seen
from kasmon.sandbox.journal import Journal


def measure(tier: Sandbox, policy: Policy, journal: Journal) -> None:
    """Note what the sandbox uses, where that is news.

    Raises:
        KasmonError, OSError: if it cannot be looked at.
    """
    runtime = journal.housing.runtime
    if not isinstance(tier, Measured) or runtime is None:
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


def prove(tier: Sandbox, policy: Policy, runtime: Runtime, journal: Journal) -> None:
    """Note whether the sandbox at *runtime* is confined as *policy* wants; one that cannot be looked at is not."""
    if isinstance(tier, Proving):
        try:
            proof = tier.prove(policy, runtime.pid)
            ok, mismatches = proof.ok, tuple(proof.mismatches)
        except KasmonError as error:
            ok, mismatches = False, (error.message,)
    elif isinstance(tier, Walled):
        found = seen(runtime)
        if found is None:
            return
        ok, mismatches = found
    else:
        return
    journal.note(ConfinementSeen(at=journal.clock(), tier=policy.tier, ok=ok, mismatches=mismatches))
