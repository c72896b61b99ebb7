"""Fork a sandbox for another session: with all memory if its tier can, else from a checkpoint; the result says which.

To be copied with its memory, the sandbox is paused to disk meanwhile. If the host dies in between, it stays paused and
can be resumed as usual; the copy is either whole or marked as incomplete (`model.sandbox.snapshot.ForkOrigin`).
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
    """The checkpoint whose files and interpreter state it has; empty if it has all memory."""
    why: str = ""
    """Why it has no memory."""
    lost: str = ""
    """What the source sandbox lost by being copied; empty if nothing."""


def copied(box: ManagedSandbox, keeping: SandboxCheckpoints, wish: Fork, other: SandboxPolicy | None) -> ForkResult:
    """Copy the sandbox of *box*, as the command *wish* asks, for the sandbox of *other*, which must not exist yet.

    If its tier cannot copy memory, or the sandbox could not be paused to disk, a checkpoint is copied.

    Raises:
        NotFoundError: if the checkpoint does not exist.
        SandboxError: if it could not be copied, or its snapshot may not be resumed; parts of *other* may exist then.
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
