"""The history of a session's sandbox: its runs, its checkpoints and the hosts that it could not reach.

Read from files on disk; needs no running host. Blocks: use a thread.
"""

import contextlib
from typing import TYPE_CHECKING

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.commands import Mode
from kasmon.model.sandbox.policy import SandboxPolicy
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.sandbox import tiers
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.checkpoint.records import CheckpointRecord
from kasmon.sandbox.checkpoint.replay import ReplayedRun, find_runs
from kasmon.store.event_log import EventLog
from kasmon.supervisor.sandboxes.create import policy_of_session
from kasmon.supervisor.sandboxes.snapshots import SnapshotReader, StoredSnapshots

if TYPE_CHECKING:
    from kasmon.sandbox.network.denials import Denial


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that the sandbox failed to reach; all fields but `fix` are untrusted text."""

    at: float
    host: str
    port: int
    why: str
    fix: str = ""
    """The command by which the user allows it; empty if none does."""
    entry: str = ""
    """The allowlist entry that this command adds."""


class SandboxHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a sandbox that is not in its session's value. Each tuple is oldest first."""

    policy: SandboxPolicy | None = None
    """Its policy; None if unknown."""
    runs: tuple[ReplayedRun, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """All that still exist."""
    refused: tuple[RefusedHost, ...] = ()
    remembered: StoredSnapshots = StoredSnapshots()
    """Its snapshots on disk, and its fork origin."""


def read_history(places: Paths, session: Session) -> SandboxHistory:
    """Return the history of the sandbox of *session*.

    Raises:
        SandboxError: if its checkpoints cannot be read.
    """
    policy = None
    with contextlib.suppress(SandboxError):
        policy = policy_of_session(places, session.id)
    if session.mode is not Mode.INTERPRETER:
        return SandboxHistory(policy=policy, refused=_refused(policy))
    facts = (event for event, _ in EventLog(places.log(session.id)).read())
    return SandboxHistory(
        policy=policy,
        runs=find_runs(facts, lambda digest: (places.blobs(session.id) / digest).read_text("utf-8")),
        checkpoints=CheckpointStore(places.checkpoints(session.id)).all(),
        refused=_refused(policy),
        remembered=SnapshotReader(places).of(session),
    )


def _refused(policy: SandboxPolicy | None) -> tuple[RefusedHost, ...]:
    if policy is None:
        return ()
    read_denials = getattr(tiers.tier_of(policy), "denials", None)  # of a tier whose network kasmon itself filters
    found: tuple[Denial, ...] = read_denials(policy) if read_denials is not None else ()
    return tuple(
        RefusedHost(at=each.at, host=each.host, port=each.port, why=each.why, fix=each.fix, entry=each.entry)
        for each in found
    )
