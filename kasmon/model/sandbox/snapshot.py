"""The memory of a sandbox on disk, as a value: what it is of, what wrote it, and whether it may be gone on from."""

from typing import Final, Literal

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier

USED: Final = "it has already been used"


class SnapshotMaker(msgspec.Struct, frozen=True, kw_only=True):
    """What wrote a memory. Only the same can read it: none of these programs refuses by itself what it misreads."""

    program: str
    """With its version: `qemu 7.2.19`."""
    machine: str = ""
    """The machine that it played: `pc-q35-7.2`."""
    cpu: str = ""
    """The processor that programs inside saw."""
    image: str = ""
    """SHA-256 of what the sandbox booted from, where it did."""


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a memory."""

    name: str
    size_bytes: int
    sha256: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One memory on disk. No credential's value is in its parts: they were taken out before it was written."""

    id: str
    session: SessionId
    """Whose; a fork's has the fork's."""
    tier: LoggedTier
    kind: Literal["memory", "golden"] = "memory"
    """`golden`: new sandboxes are copies of it, so it is used any number of times, and belongs to no session."""
    at: float
    """When it was written, in seconds since the epoch."""
    boot: str = ""
    """Which boot of this machine that was in."""
    turn: int = 0
    """How many turns the session had had."""
    disk_generation: int = 0
    """The disk that belongs to it: it counts each time that something begins to run on it."""
    made_by: SnapshotMaker
    parts: tuple[SnapshotPart, ...] = ()
    used_at: float | None = None
    """When something went on from it; None: nothing did."""

    @property
    def size_bytes(self) -> int:
        """What it takes on disk."""
        return sum(part.size_bytes for part in self.parts)


class SnapshotVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A memory on disk as it is now."""

    snapshot: Snapshot
    refused: str = ""
    """Why nothing may go on from it, as a few words; empty where it may."""
    is_this_boot: bool = True
    """The machine was not started anew since."""

    @property
    def at(self) -> float:
        """When it was written, in seconds since the epoch."""
        return self.snapshot.at


class ForkOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """What the sandbox of a forked session began as."""

    source: SessionId
    """Whose copy it is."""
    name: str
    """What that session was called then."""
    at: float
    """When it was wanted, in seconds since the epoch."""
    is_whole: bool = False
    """The copy was made to its end: only then anything runs on it."""
    with_memory: bool = False
    checkpoint: str = ""
    """The checkpoint of the source that it is a copy of; empty where it has its memory."""
    why: str = ""
    """Why it has no memory, as a few words."""


def origin_words(origin: ForkOrigin) -> str:
    """How much of its source a fork has: `with its memory`. Pure."""
    if not origin.is_whole:
        return "incomplete"
    if origin.with_memory:
        return "with its memory"
    return f"files and saved state only, because {origin.why or 'of an unknown reason'}"


def refusal(snapshot: Snapshot, session: SessionId, made_by: SnapshotMaker, disk_generation: int) -> str:
    """Why nothing may go on from *snapshot*, as a few words; empty where it may. Pure: its files are not looked at.

    Args:
        snapshot: what was kept.
        session: who wants to go on from it.
        made_by: what would read it.
        disk_generation: of the disk as it is now.
    """
    if snapshot.kind == "memory" and snapshot.session != session:
        return f"it is foreign: it belongs to the session {snapshot.session!r}"
    for what in ("program", "machine", "cpu", "image"):
        was, now = getattr(snapshot.made_by, what), getattr(made_by, what)
        if was != now:
            return f"it is foreign: it was made with another {what} ({was or 'none'}; here: {now or 'none'})"
    if snapshot.kind == "golden":
        return ""
    if snapshot.used_at is not None:
        return USED
    if snapshot.disk_generation != disk_generation:
        return f"it is stale: its disk was at {snapshot.disk_generation}, and is now at {disk_generation}"
    return ""
