"""Memories of a sandbox on disk: one is kept until the next one is confirmed, and each is gone on from once.

    folder/state.json      which one counts, and at which generation the disk is
    folder/ID/             its parts and `snapshot.json`; confirmed
    folder/.ID/            one that is being written; whatever dies there, nobody believes it

All is 0600 in folders 0700. `state.json` is replaced last, so a kill at any step leaves the old one or the new one.
A memory holds what programs inside held: it is as private as they were, and goes when its sandbox is destroyed.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kasmon.boot_id import boot
from kasmon.errors import SandboxError, SandboxUnreachableError, SnapshotRefusedError
from kasmon.model.permission import SessionId
from kasmon.model.sandbox.policy import Tier
from kasmon.model.sandbox.snapshot import Snapshot, SnapshotMaker, SnapshotPart, SnapshotVerdict, refusal
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.shared.safe_tree import raze

RECORD: Final = "snapshot.json"


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """What counts."""

    current: str = ""
    """The id of the last one that was confirmed; empty where there is none."""
    disk_generation: int = 0


class SnapshotStore:
    """The memories of one session in *folder*. Making this touches nothing; one process at a time calls it."""

    def __init__(self, folder: Path, session: SessionId, tier: Tier) -> None:
        self.folder, self._session, self._tier = folder, session, tier

    @property
    def disk_generation(self) -> int:
        """At which the disk is: it counts each time that something begins to run on it."""
        return self._state().disk_generation

    def moved_on(self) -> None:
        """Something is about to run on the disk: no memory that is here fits it any more. On disk when it returns.

        Raises:
            SandboxUnreachableError: if that cannot be written: nothing may run then, and may be begun once it can be.
        """
        state = self._state()
        with _written_first():
            self._write(msgspec.structs.replace(state, disk_generation=state.disk_generation + 1))

    def current(self) -> Snapshot | None:
        """The last one that was confirmed, whether it may be gone on from or not; None where there is none."""
        known = self._state().current
        try:
            return msgspec.json.decode((self.folder / known / RECORD).read_bytes(), type=Snapshot) if known else None
        except (OSError, msgspec.MsgspecError):
            return None

    def path(self, snapshot: Snapshot, part: str) -> Path:
        """Where *part* of it lies."""
        return self.folder / snapshot.id / part

    @contextlib.contextmanager
    def draft(self) -> "Iterator[SnapshotDraft]":
        """A new one, whose parts are written into its `folder`; where it is not confirmed, nothing of it stays.

        Raises:
            SandboxError: if the disk cannot hold it, or it cannot be written; the one before counts on.
        """
        fresh = SnapshotDraft(self, secrets.token_hex(6))
        try:
            self._sweep()
            private_folder(self.folder)
            private_folder(fresh.folder)
            yield fresh
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            raise SandboxError("its memory was not saved", why) from error
        finally:
            raze(fresh.folder)

    def confirmed(self, draft: "SnapshotDraft", made_by: SnapshotMaker, turn: int) -> Snapshot:
        """Let *draft* count, and the one before it go.

        Raises:
            OSError: if that cannot be written; the one before counts on.
        """
        state = self._state()
        parts = tuple(_part(path) for path in sorted(draft.folder.iterdir()))
        snapshot = Snapshot(
            id=draft.id,
            session=self._session,
            tier=self._tier,
            at=time.time(),
            boot=boot(),
            turn=turn,
            disk_generation=state.disk_generation,
            made_by=made_by,
            parts=parts,
        )
        self._place(draft.folder, snapshot)
        self._write(msgspec.structs.replace(state, current=snapshot.id))
        self._sweep()
        return snapshot

    def fit(self, made_by: SnapshotMaker) -> Snapshot:
        """The one that counts, looked at whole: it may be gone on from, by *made_by*, with the disk as it is.

        Raises:
            SnapshotRefusedError: if there is none, or it was used, is stale, foreign, truncated or damaged.
        """
        snapshot, state = self.current(), self._state()
        if snapshot is None:
            raise SnapshotRefusedError("there is none")
        if why := refusal(snapshot, self._session, made_by, state.disk_generation) or self._damage(snapshot):
            raise SnapshotRefusedError(why)
        return snapshot

    def judged(self, made_by: Callable[[], SnapshotMaker], *, whole: bool = False) -> SnapshotVerdict | None:
        """The one that counts, whether something may go on from it or not; None where there is none.

        Args:
            made_by: what would read it; may raise a `SandboxError`.
            whole: read its parts through; else only what is said of them and how long they are is looked at.
        """
        if (snapshot := self.current()) is None:
            return None
        try:
            why = refusal(snapshot, self._session, made_by(), self._state().disk_generation)
        except SandboxError as error:
            why = error.message.rstrip(".")
        why = why or self._damage(snapshot, whole=whole)
        return SnapshotVerdict(snapshot=snapshot, refused=why, is_this_boot=snapshot.boot == boot())

    def used(self, snapshot: Snapshot) -> None:
        """Something goes on from *snapshot* as soon as this returns: nothing ever does again. On disk then.

        Raises:
            SandboxUnreachableError: as `moved_on`.
        """
        fresh = msgspec.structs.replace(snapshot, used_at=time.time())
        with _written_first():
            write_private(self.folder / snapshot.id / RECORD, _encoded(fresh))
        self.moved_on()

    def drop(self) -> None:
        """Forget them all, their disk's generation too. Idempotent.

        Raises:
            OSError: if something cannot be removed.
        """
        raze(self.folder)

    def copy_to(self, other: "SnapshotStore", snapshot: Snapshot) -> Snapshot:
        """Keep a copy of *snapshot* for *other*, which has a copy of its disk as that is now; both may be gone on from.

        Raises:
            SandboxError: if it could not be copied; *other* has nothing new then.
        """
        with other.draft() as draft:
            for part in snapshot.parts:
                _copied(self.path(snapshot, part.name), draft.folder / part.name)
            return other.confirmed(draft, snapshot.made_by, snapshot.turn)

    def _place(self, fresh: Path, snapshot: Snapshot) -> None:
        for part in snapshot.parts:
            (fresh / part.name).chmod(0o600)
            _synced(fresh / part.name)
        write_private(fresh / RECORD, _encoded(snapshot))
        _synced(fresh / RECORD)
        _synced(fresh)
        fresh.rename(self.folder / snapshot.id)
        _synced(self.folder)

    def _damage(self, snapshot: Snapshot, *, whole: bool = True) -> str:
        for part in snapshot.parts:
            path = self.path(snapshot, part.name)
            try:
                size = path.stat().st_size
                if size < part.size_bytes:
                    return f"it is truncated: {part.name} has {size} bytes of {part.size_bytes}"
                if size > part.size_bytes or (whole and _part(path) != part):
                    return f"it is damaged: {part.name} has changed since it was written"
            except OSError as error:
                return f"it is damaged: {part.name} cannot be read ({error.strerror})"
        return ""

    def _state(self) -> StoredState:
        """
        Raises:
            SandboxError: if it is there and cannot be read: which disk fits which memory is not known then.
        """
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=StoredState)
        except FileNotFoundError:
            return StoredState()
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError("the record of its memory snapshot cannot be read", str(error)) from error

    def _write(self, state: StoredState) -> None:
        private_folder(self.folder)
        write_private(self.folder / "state.json", _encoded(state))
        _synced(self.folder / "state.json")
        _synced(self.folder)

    def _sweep(self) -> None:
        """Remove what does not count."""
        current = self._state().current
        with contextlib.suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if path.is_dir() and path.name != current:
                    raze(path)


class SnapshotDraft:
    """One that is being written."""

    def __init__(self, memories: SnapshotStore, identity: str) -> None:
        self._memories, self.id = memories, identity
        self.folder = memories.folder / f".{identity}"
        """Each file in it becomes a part."""

    def confirm(self, made_by: SnapshotMaker, turn: int = 0) -> Snapshot:
        """Let it count: its parts are whole, and nothing writes to them any more.

        Raises:
            OSError: if that cannot be written.
        """
        return self._memories.confirmed(self, made_by, turn)


@contextlib.contextmanager
def _written_first() -> "Iterator[None]":
    """What must be on disk before something runs is written meanwhile."""
    try:
        yield
    except OSError as error:
        why = f"the use of its disk cannot be recorded ({error.strerror or error})"
        raise SandboxUnreachableError(
            "the sandbox was not started", why, "Try again when files can be written."
        ) from error


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


def _part(path: Path) -> SnapshotPart:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return SnapshotPart(name=path.name, size_bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def _copied(source: Path, target: Path) -> None:
    """Copy a file; the file system shares what it can."""
    with source.open("rb") as old, target.open("xb") as new:
        left = os.fstat(old.fileno()).st_size
        while left > 0:
            took = os.copy_file_range(old.fileno(), new.fileno(), left)
            if not took:
                raise OSError(errno.EIO, "it ended too early")
            left -= took


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
