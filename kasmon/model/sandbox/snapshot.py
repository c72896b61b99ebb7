"""A memory snapshot of a sandbox on disk, as a value: its source, what wrote it, and whether it may be restored."""

from typing import Final, Literal

import msgspec

from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import LoggedTier

USED: Final = "it has already been used"


class SnapshotMaker(msgspec.Struct, frozen=True, kw_only=True):
    """The program that wrote a snapshot. Only the same can read it: none of these programs detects what it misreads."""

    program: str
    """With its version: `qemu 7.2.19`."""
    machine: str = ""
    """The emulated machine: `pc-q35-7.2`."""
    cpu: str = ""
    """The processor model that the guest saw."""
    image: str = ""
    """SHA-256 of the boot image, if there was one."""


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    sha256: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One memory snapshot on disk. Its parts contain no credential values: these were removed before it was written."""

    id: str
    session: SessionId
    """The session it belongs to; a fork's snapshot belongs to the fork."""
    tier: LoggedTier
    kind: Literal["memory", "golden"] = "memory"
    """`golden`: new sandboxes are copies of it, so it is used any number of times, and belongs to no session."""
    at: float
    """When it was written, in seconds since the epoch."""
    boot: str = ""
    """The machine's boot at that time."""
    turn: int = 0
    """The number of the session's turns at that time."""
    disk_generation: int = 0
    """The generation of its disk, which counts each start on it."""
    made_by: SnapshotMaker
    parts: tuple[SnapshotPart, ...] = ()
    used_at: float | None = None
    """When it was restored, in seconds since the epoch; None: never."""

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


class SnapshotVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a snapshot on disk now."""

    snapshot: Snapshot
    refused: str = ""
    """Why it must not be restored, as a few words; empty if it may."""
    is_this_boot: bool = True
    """The machine was not rebooted since."""

    @property
    def at(self) -> float:
        """When it was written, in seconds since the epoch."""
        return self.snapshot.at


class ForkOrigin(msgspec.Struct, frozen=True, kw_only=True):
    source: SessionId
    """The session that it was copied from."""
    name: str
    """That session's name at the time."""
    at: float
    """When the fork was requested, in seconds since the epoch."""
    is_whole: bool = False
    """The copy is complete: only then anything runs on it."""
    with_memory: bool = False
    checkpoint: str = ""
    """The copied checkpoint of the source; empty if it has the source's memory."""
    why: str = ""
    """Why it has no memory, as a few words."""


def describe_origin(origin: ForkOrigin) -> str:
    """Return how much of its source a fork has: `with its memory`. Pure."""
    if not origin.is_whole:
        return "incomplete"
    if origin.with_memory:
        return "with its memory"
    return f"files and saved state only, because {origin.why or 'of an unknown reason'}"


def refusal(snapshot: Snapshot, session: SessionId, made_by: SnapshotMaker, disk_generation: int) -> str:
    """Return why *snapshot* must not be restored, as a few words; empty if it may. Pure: does not read its files.

    Args:
        made_by: the program that would read it.
        disk_generation: that of the current disk.
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
