"""What happened in a session's sandbox, for a person to look back at: its runs, its checkpoints, whom it did not reach.

Read from what lies on disk; no host need be alive. Blocks: use a thread.
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
    """A host that it wanted to reach and did not; all of it is foreign text but `fix`."""

    at: float
    host: str
    port: int
    why: str
    fix: str = ""
    """The command by which a person allows it; empty where none does."""
    entry: str = ""
    """What that command allows, as a list has it."""


class SandboxHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a sandbox beside what its session's value says. Each oldest first."""

    policy: SandboxPolicy | None = None
    """What it is and may; None where nothing says so."""
    runs: tuple[ReplayedRun, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """All that are kept still."""
    refused: tuple[RefusedHost, ...] = ()
    remembered: StoredSnapshots = StoredSnapshots()
    """Its memory on disk, and what it began as."""


def past(places: Paths, session: Session) -> SandboxHistory:
    """What happened in the sandbox of *session*.

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
    told = getattr(tiers.tier_of(policy), "denials", None)  # of a tier whose network kasmon itself watches over
    found: tuple[Denial, ...] = told(policy) if told is not None else ()
    return tuple(
        RefusedHost(at=each.at, host=each.host, port=each.port, why=each.why, fix=each.fix, entry=each.entry)
        for each in found
    )
