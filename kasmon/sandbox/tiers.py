"""Which tiers of sandbox there are, and what belongs to each: none is loaded before it is wanted."""

from importlib import import_module
from pathlib import Path
from typing import Final

from kasmon.errors import UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier, SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import Paths, private_folder
from kasmon.sandbox.base import SandboxTier
from kasmon.sandbox.guest_client.protocol import CheckpointPoints, GuestClient

TIERS: Final[dict[Tier, str]] = {
    "jail": "kasmon.sandbox.jail.jail:Jail",
    "microvm": "kasmon.sandbox.microvm.machine:MicroVm",
    "e2b": "kasmon.sandbox.e2b.tier:E2b",
}
"""Tier -> where its sandbox is."""


def tier_of(policy: SandboxPolicy) -> SandboxTier:
    """What confines the sandbox of *policy*.

    Raises:
        UnableError: if this version has no such tier.
    """
    return load(policy.tier)


def load(tier: LoggedTier, of: Paths | None = None) -> SandboxTier:
    """The sandbox of *tier*, of the kasmon of those places; by default of the one that the environment names.

    Raises:
        UnableError: if this version has no such tier.
    """
    if tier not in TIERS:
        raise UnableError(
            f"there is no sandbox tier {tier!r} in this version of kasmon.", hint=f"Tiers: {', '.join(TIERS)}."
        )
    module, _, name = TIERS[tier].partition(":")
    sandbox: SandboxTier = getattr(import_module(module), name)(of)
    return sandbox


def furnish(sandbox: SandboxTier, policy: SandboxPolicy) -> str:
    """The workspace of a sandbox of *policy* that is yet to be made; it is there then, and of whom it should be."""
    ground = getattr(sandbox, "ground", None)
    if ground is not None and not policy.workspace:
        ground.make(policy.session)
        ground.own_workspace(policy.session)
    elif not policy.workspace:
        private_folder(Path(sandbox.workspace(policy)))
    return sandbox.workspace(policy)


def reach(runtime: SandboxRuntime, name: str = "") -> GuestClient:
    """The agent inside the sandbox that lives at *runtime*, of the session called *name*."""
    from kasmon.sandbox.guest_client.channel import GuestChannel

    return GuestChannel(runtime.socket, name=name)


def points(places: Paths, session: SessionId) -> CheckpointPoints:
    """Where the checkpoints of *session* lie."""
    from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore

    return CheckpointStore(places.checkpoints(session))
