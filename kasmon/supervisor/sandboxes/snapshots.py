"""The sandbox snapshots on this machine's disk, and the origins of forked sandboxes, for listings.

Read from files on disk; needs no running host. Blocks: use a thread.
"""

import functools

import msgspec

from kasmon.errors import KasmonError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import REMEMBERING, LoggedTier, SandboxPolicy
from kasmon.model.sandbox.snapshot import ForkOrigin, SnapshotVerdict
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.base import LocalSnapshotTier, SandboxTier
from kasmon.sandbox.managed.idle_policy import origin_of
from kasmon.supervisor.sandboxes.create import policy_of_session


class StoredSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots of one session's sandbox on disk."""

    snapshots: tuple[SnapshotVerdict, ...] = ()
    missing: str = ""
    """Why there is no snapshot although its events say that it is paused to one; empty if nothing is wrong."""
    origin: ForkOrigin | None = None


class SnapshotReader:
    """Reads snapshots; the requirements of each tier are determined once."""

    def __init__(self, places: Paths) -> None:
        self._places = places
        self._load = functools.cache(lambda tier: tiers.load(tier, places))

    def of(self, session: Session, *, whole: bool = False) -> StoredSnapshots:
        """Return the snapshots of the sandbox of *session*; their content is verified only with *whole*."""
        origin = origin_of(self._places, session.id)
        tier = session.sandbox
        if session.sandbox_state is None or tier not in REMEMBERING:
            return StoredSnapshots(origin=origin)
        try:
            verdict = self._judge(session.id, session.sandbox_state.tier, whole)
        except (KasmonError, OSError) as error:
            return StoredSnapshots(missing=_why(error), origin=origin)
        if verdict is None:
            sleeps = session.sandbox_state.is_asleep and not session.sandbox_state.held
            return StoredSnapshots(missing="it no longer exists" if sleeps and tier != "e2b" else "", origin=origin)
        return StoredSnapshots(snapshots=(verdict,), origin=origin)

    def _judge(self, session: SessionId, tier: LoggedTier, whole: bool) -> SnapshotVerdict | None:
        sandbox: SandboxTier = self._load(tier)
        policy: SandboxPolicy = policy_of_session(self._places, session)
        return sandbox.check_snapshot(policy, whole=whole) if isinstance(sandbox, LocalSnapshotTier) else None


def _why(error: KasmonError | OSError) -> str:
    return (error.message if isinstance(error, KasmonError) else error.strerror or str(error)).rstrip(".")
