"""What happened in a session's sandbox, for a person to look back at: its runs, its checkpoints, whom it did not reach.

Read from what lies on disk; no host need be alive. Blocks: use a thread.
"""

import contextlib
from typing import TYPE_CHECKING

import msgspec

from kasmon.errors import SandboxError
from kasmon.model.command import Mode
from kasmon.model.sandbox import Policy
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.sandbox import tiers
from kasmon.sandbox.checkpoint.checkpoint import Checkpoints
from kasmon.sandbox.checkpoint.replay import Done, done
from kasmon.sandbox.checkpoint.shelf import Checkpoint
from kasmon.store.log import EventLog
from kasmon.supervisor.housing import policy_of_session
from kasmon.supervisor.remembered import Memory, Remembered

if TYPE_CHECKING:
    from kasmon.sandbox.network.denial import Denial


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A host that it wanted to reach and did not; all of it is foreign text but `fix`."""

    at: float
    host: str
    port: int
    why: str
    fix: str = ""
    """The command by which a person allows it; empty where none does."""


class SandboxPast(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a sandbox beside what its session's value says. Each oldest first."""

    policy: Policy | None = None
    """What it is and may; None where nothing says so."""
    runs: tuple[Done, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    """All that are kept still."""
    refused: tuple[Refused, ...] = ()
    remembered: Remembered = Remembered()
    """Its memory on disk, and what it began as."""


def past(places: Places, session: Session) -> SandboxPast:
    """What happened in the sandbox of *session*.

    Raises:
        SandboxError: if its checkpoints cannot be read.
    """
    policy = None
    with contextlib.suppress(SandboxError):
        policy = policy_of_session(places, session.id)
    if session.mode is not Mode.INTERPRETER:
        return SandboxPast(policy=policy, refused=_refused(policy))
    facts = (event for event, _ in EventLog(places.log(session.id)).read())
    return SandboxPast(
        policy=policy,
        runs=done(facts, lambda digest: (places.blobs(session.id) / digest).read_text("utf-8")),
        checkpoints=Checkpoints(places.checkpoints(session.id)).all(),
        refused=_refused(policy),
        remembered=Memory(places).of(session),
    )


def _refused(policy: Policy | None) -> tuple[Refused, ...]:
    if policy is None:
        return ()
    told = getattr(tiers.tier_of(policy), "denials", None)  # of a tier whose network kasmon itself watches over
    found: tuple[Denial, ...] = told(policy) if told is not None else ()
    return tuple(Refused(at=each.at, host=each.host, port=each.port, why=each.why, fix=each.fix) for each in found)
