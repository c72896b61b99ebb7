"""A sandbox is copied for another session: with all memory where its tier can, else a checkpoint of it. It says which.

Copied with its memory it sleeps on disk meanwhile. Whoever dies in the midst leaves it asleep there, to be woken like
any that sleeps, and the copy either whole or known not to be (`model.sandbox.snapshot.ForkOrigin`).
"""

from typing import Final, NamedTuple

from kasmon.errors import SandboxError, SnapshotRefusedError
from kasmon.model.commands import Fork
from kasmon.model.sandbox.policy import SandboxPhase, SandboxPolicy
from kasmon.sandbox.base import ForkTier, PauseResult
from kasmon.sandbox.managed.checkpoints import SandboxCheckpoints
from kasmon.sandbox.managed.sandbox import ManagedSandbox

FORKED: Final = "it is copied"
AT_CHECKPOINT: Final = "a checkpoint contains no memory"


class ForkResult(NamedTuple):
    """What the other session got."""

    checkpoint: str = ""
    """Of which it has files and what was kept of interpreters; empty where it has all memory."""
    why: str = ""
    """Why it has no memory."""
    lost: str = ""
    """What the one that was copied lost by that; empty where nothing."""


def copied(box: ManagedSandbox, keeping: SandboxCheckpoints, wish: Fork, other: SandboxPolicy | None) -> ForkResult:
    """Copy the sandbox of *box* as *wish* says, for the sandbox of *other*, which has nothing yet.

    Where its tier cannot copy memory, or that could not be put on disk, it is copied by a checkpoint.

    Raises:
        NotFoundError: if there is no such checkpoint.
        SandboxError: if it could not be copied, or sleeps in a memory that nothing may go on from; something of *other*
            may be there then.
    """
    why = AT_CHECKPOINT if wish.checkpoint else _why_not(box)
    if not why and other is not None:
        was_awake = box.runs
        why = box.sleep(to_disk=True, why=FORKED)
        if not why:
            try:
                _with_memory(box, other)
            finally:
                lost = box.wake() if was_awake else ""
            return ForkResult(lost=lost)
    return ForkResult(checkpoint=keeping.fork(wish.checkpoint, wish.folder, wish.memory), why=why)


def _why_not(box: ManagedSandbox) -> str:
    return "" if isinstance(box.tier, ForkTier) else f"a {box.policy.tier} cannot copy its memory"


def _with_memory(box: ManagedSandbox, other: SandboxPolicy) -> None:
    housing = box.journal.housing
    assert isinstance(box.tier, ForkTier)
    if housing.phase is not SandboxPhase.PAUSED or housing.held:
        raise SandboxError("it could not be copied", "it is not paused to disk")
    try:
        box.tier.fork(box.policy, PauseResult(held=False, snapshot=housing.snapshot), other)
    except SnapshotRefusedError as error:
        hint = "Fork one of its checkpoints instead: `--at`."
        raise SandboxError("it cannot be copied with its memory", error.why, hint) from error
