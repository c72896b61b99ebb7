"""The table of sandbox tiers, and the loading of each; a tier's module is imported on first use."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.errors import SandboxError, UnableError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier, SandboxPolicy, SandboxRuntime, Tier
from kasmon.paths import Paths, private_folder
from kasmon.sandbox.base import SandboxTier

if TYPE_CHECKING:
    from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
    from kasmon.sandbox.guest_client.channel import GuestChannel

TIERS: Final[dict[Tier, str]] = {
    "jail": "kasmon.sandbox.jail.jail:Jail",
    "microvm": "kasmon.sandbox.microvm.machine:MicroVm",
    "e2b": "kasmon.sandbox.e2b.tier:E2b",
}
"""Tier -> its class, as module:name."""


def policy_of(paths: Paths, session: SessionId) -> SandboxPolicy:
    """Load the policy of the sandbox of *session*. Raises `SandboxError` if its file cannot be read."""
    path = paths.sandbox(session)
    try:
        return msgspec.json.decode(path.read_bytes(), type=SandboxPolicy)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SandboxError(f"the sandbox of {session!r} is unknown", f"{str(path)!r} cannot be read: {error}") from (
            error
        )


def tier_of(policy: SandboxPolicy) -> SandboxTier:
    """Return the tier of *policy*. Raises `UnableError` if this version has no such tier."""
    return load(policy.tier)


def load(tier: LoggedTier, paths: Paths | None = None) -> SandboxTier:
    """Return *tier* of *paths*, by default the environment's. Raises `UnableError` if there is no such tier."""
    if tier not in TIERS:
        raise UnableError(
            f"there is no sandbox tier {tier!r} in this version of kasmon.", hint=f"Tiers: {', '.join(TIERS)}."
        )
    module, _, name = TIERS[tier].partition(":")
    sandbox: SandboxTier = getattr(import_module(module), name)(paths)
    return sandbox


def create_workspace(sandbox: SandboxTier, policy: SandboxPolicy) -> str:
    """Create the workspace of a new sandbox of *policy*, with the right owner, and return its path."""
    host_folders = getattr(sandbox, "host_folders", None)
    if host_folders is not None and not policy.workspace:
        host_folders.make(policy.session)
        host_folders.own_workspace(policy.session)
    elif not policy.workspace:
        private_folder(Path(sandbox.workspace(policy)))
    return sandbox.workspace(policy)


def connect_guest(runtime: SandboxRuntime, name: str = "") -> "GuestChannel":
    """Return a client of the guest program of the sandbox at *runtime*; *name*: its session."""
    from kasmon.sandbox.guest_client.channel import GuestChannel

    return GuestChannel(runtime.socket, name=name)


def checkpoint_store(paths: Paths, session: SessionId) -> "CheckpointStore":
    from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore

    return CheckpointStore(paths.checkpoints(session))
