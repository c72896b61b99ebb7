"""The history of a session's sandbox: its runs, checkpoints, snapshots and origin, and hosts it could not reach.

Read from files on disk; needs no running host. Blocks: use a thread.
"""

import contextlib
import functools

import msgspec

from kasmon.errors import KasmonError, SandboxError, explain_error
from kasmon.model.commands import Mode
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import REMEMBERING, LoggedTier, SandboxPolicy
from kasmon.model.sandbox.snapshot import ForkOrigin, SnapshotVerdict
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.base import EgressTier, LocalSnapshotTier, SandboxTier
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.checkpoint.records import CheckpointRecord
from kasmon.sandbox.checkpoint.replay import ReplayedRun, find_runs
from kasmon.sandbox.managed.idle_policy import origin_of
from kasmon.sandbox.network.denials import Denial
from kasmon.store.event_log import EventLog
from kasmon.supervisor.machines.copied_files import read_blob
from kasmon.supervisor.machines.dispatch import dispatch


class StoredSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots of one session's sandbox on disk."""

    snapshots: tuple[SnapshotVerdict, ...] = ()
    missing: str = ""
    """Why there is no snapshot although its events say that it is paused to one; empty if nothing is wrong."""
    origin: ForkOrigin | None = None


class SnapshotReader:
    """Reads snapshots; the requirements of each tier are determined once."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._load = functools.cache(lambda tier: tiers.load(tier, paths))

    def of(self, session: Session, *, whole: bool = False) -> StoredSnapshots:
        """Return the snapshots of the sandbox of *session*; their content is verified only with *whole*."""
        origin = origin_of(self._paths, session.id)
        tier = session.sandbox
        if session.sandbox_state is None or tier not in REMEMBERING:
            return StoredSnapshots(origin=origin)
        try:
            verdict = self._judge(session.id, session.sandbox_state.tier, whole)
        except (KasmonError, OSError) as error:
            return StoredSnapshots(missing=explain_error(error), origin=origin)
        if verdict is None:
            sleeps = session.sandbox_state.is_asleep and not session.sandbox_state.held
            return StoredSnapshots(missing="it no longer exists" if sleeps and tier != "e2b" else "", origin=origin)
        return StoredSnapshots(snapshots=(verdict,), origin=origin)

    def _judge(self, session: SessionId, tier: LoggedTier, whole: bool) -> SnapshotVerdict | None:
        sandbox: SandboxTier = self._load(tier)
        policy: SandboxPolicy = tiers.policy_of(self._paths, session)
        return sandbox.check_snapshot(policy, whole=whole) if isinstance(sandbox, LocalSnapshotTier) else None


class SandboxHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a sandbox that is not in its session's value. Each tuple is oldest first."""

    policy: SandboxPolicy | None = None
    runs: tuple[ReplayedRun, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    refused: tuple[Denial, ...] = ()
    """The hosts that it failed to reach; all fields but `fix` are untrusted text."""
    remembered: StoredSnapshots = StoredSnapshots()
    """Its snapshots on disk, and its fork origin."""


@dispatch
def read_history(paths: Paths, session: Session) -> SandboxHistory:
    """Return the history of the sandbox of *session*. Raises `SandboxError` if its checkpoints cannot be read."""
    policy = read_policy(paths, session)
    if session.mode is not Mode.INTERPRETER:
        return SandboxHistory(policy=policy, refused=_list_denials(policy))
    facts = EventLog(paths.log(session.id)).events()
    return SandboxHistory(
        policy=policy,
        runs=find_runs(facts, lambda digest: read_blob(paths, session, digest)),
        checkpoints=CheckpointStore(paths.checkpoints(session.id)).all(),
        refused=_list_denials(policy),
        remembered=SnapshotReader(paths).of(session),
    )


@read_history.elsewhere
def _read_history_there(paths: Paths, session: Session) -> SandboxHistory:
    from kasmon.supervisor.machines import sandboxes  # only for sessions of other machines

    return sandboxes.read_history(paths, session)


def read_policy(paths: Paths, session: Session) -> SandboxPolicy | None:
    """Return the policy of the sandbox of *session*; None if it is unknown."""
    with contextlib.suppress(SandboxError):
        return tiers.policy_of(paths, session.id)
    return None


def _list_denials(policy: SandboxPolicy | None) -> tuple[Denial, ...]:
    if policy is None:
        return ()
    tier = tiers.tier_of(policy)
    return tier.denials(policy) if isinstance(tier, EgressTier) else ()
