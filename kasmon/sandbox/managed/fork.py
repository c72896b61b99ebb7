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


def fork_sandbox(
    sandbox: ManagedSandbox, checkpoints: SandboxCheckpoints, command: Fork, other: SandboxPolicy | None
) -> ForkResult:
    """Copy the sandbox of *sandbox*, as *command* asks, for the sandbox of *other*, which must not exist yet.

    If its tier cannot copy memory, or the sandbox could not be paused to disk, a checkpoint is copied.

    Raises:
        NotFoundError: if the checkpoint does not exist.
        SandboxError: if it could not be copied, or its snapshot may not be resumed; parts of *other* may exist then.
    """
    why = AT_CHECKPOINT if command.checkpoint else _why_not(sandbox)
    if not why and other is not None:
        was_awake = sandbox.runs
        why = sandbox.sleep(to_disk=True, why=FORKED)
        if not why:
            try:
                _fork_with_memory(sandbox, other)
            finally:
                lost = sandbox.wake() if was_awake else ""
            return ForkResult(lost=lost)
    return ForkResult(checkpoint=checkpoints.fork(command.checkpoint, command.folder, command.memory), why=why)


def _why_not(sandbox: ManagedSandbox) -> str:
    return "" if isinstance(sandbox.tier, ForkTier) else f"a {sandbox.policy.tier} cannot copy its memory"


def _fork_with_memory(sandbox: ManagedSandbox, other: SandboxPolicy) -> None:
    state = sandbox.journal.sandbox_state
    assert isinstance(sandbox.tier, ForkTier)
    if state.phase is not SandboxPhase.PAUSED or state.held:
        raise SandboxError("it could not be copied", "it is not paused to disk")
    try:
        sandbox.tier.fork(sandbox.policy, PauseResult(held=False, snapshot=state.snapshot), other)
    except SnapshotRefusedError as error:
        hint = "Fork one of its checkpoints instead: `--at`."
        raise SandboxError("it cannot be copied with its memory", error.why, hint) from error
