"""A sandbox is copied for another session: with all memory where its tier can, else a checkpoint of it. It says which.

Copied with its memory it sleeps on disk meanwhile. Whoever dies in the midst leaves it asleep there, to be woken like
any that sleeps, and the copy either whole or known not to be (`model.snapshot.Origin`).
"""

from typing import Final, NamedTuple

from kasmon.errors import SandboxError, SnapshotRefusedError
from kasmon.model.command import Fork
from kasmon.model.sandbox import Phase, Policy
from kasmon.sandbox.base import Forking, Slept
from kasmon.sandbox.box import Box
from kasmon.sandbox.keeping import Keeping

FORKED: Final = "it is copied"
AT_CHECKPOINT: Final = "a checkpoint holds no memory"


class Copied(NamedTuple):
    """What the other session got."""

    checkpoint: str = ""
    """Of which it has files and what was kept of interpreters; empty where it has all memory."""
    why: str = ""
    """Why it has no memory."""
    lost: str = ""
    """What the one that was copied lost by that; empty where nothing."""


def copied(box: Box, keeping: Keeping, wish: Fork, other: Policy | None) -> Copied:
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
            return Copied(lost=lost)
    return Copied(checkpoint=keeping.fork(wish.checkpoint, wish.folder, wish.memory), why=why)


def _why_not(box: Box) -> str:
    return "" if isinstance(box.tier, Forking) else f"a {box.policy.tier} cannot copy its memory"


def _with_memory(box: Box, other: Policy) -> None:
    housing = box.journal.housing
    assert isinstance(box.tier, Forking)
    if housing.phase is not Phase.PAUSED or housing.held:
        raise SandboxError("it could not be copied", "it does not sleep on disk")
    try:
        box.tier.fork(box.policy, Slept(held=False, snapshot=housing.snapshot), other)
    except SnapshotRefusedError as error:
        hint = "Fork one of its checkpoints instead: `--at`."
        raise SandboxError("it cannot be copied with its memory", error.why, hint) from error
