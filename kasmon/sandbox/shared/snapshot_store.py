"""Snapshots of a sandbox on disk: one is retained until the next is confirmed, and each can be resumed once.

    folder/state.json      the current snapshot's id, and the disk generation
    folder/ID/             a confirmed one: its parts and `snapshot.json`
    folder/.ID/            a draft that is being written; ignored and removed if its writer died

All files are 0600 in folders 0700. `state.json` is replaced last, so a kill at any step leaves the old one or the new
one. A snapshot contains the memory of programs inside: it is as private, and removed when its sandbox is destroyed.
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
from kasmon.paths import private_folder, read_json, write_private
from kasmon.sandbox.shared.safe_tree import remove_tree

RECORD: Final = "snapshot.json"


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `state.json`."""

    current: str = ""
    """The id of the last confirmed snapshot; empty if there is none."""
    disk_generation: int = 0


class SnapshotStore:
    """The snapshots of one session in *folder*. Constructing this has no side effects; not for concurrent use."""

    def __init__(self, folder: Path, session: SessionId, tier: Tier) -> None:
        self.folder, self._session, self._tier = folder, session, tier

    @property
    def disk_generation(self) -> int:
        """The generation of the disk: it increases each time that a sandbox starts to run on it."""
        return self._state().disk_generation

    def advance_generation(self) -> None:
        """Increase the disk generation: a sandbox is about to run, so no snapshot fits any more. Durable on return.

        Raises:
            SandboxUnreachableError: if it cannot be written; the sandbox must not run, and can be retried later.
        """
        state = self._state()
        with _require_written():
            self._write(msgspec.structs.replace(state, disk_generation=state.disk_generation + 1))

    def current(self) -> Snapshot | None:
        """Return the last confirmed snapshot, resumable or not; None if there is none."""
        known = self._state().current
        return read_json(self.folder / known / RECORD, Snapshot, None) if known else None

    def path(self, snapshot: Snapshot, part: str) -> Path:
        return self.folder / snapshot.id / part

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield the folder of a new snapshot: each file in it becomes a part. It is removed, if not confirmed by then.

        Raises:
            SandboxError: if the disk is full, or it cannot be written; the former snapshot stays current.
        """
        fresh = self.folder / f".{secrets.token_hex(6)}"
        try:
            self._sweep()
            private_folder(self.folder)
            yield private_folder(fresh)
        except OSError as error:
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            raise SandboxError("its memory was not saved", why) from error
        finally:
            remove_tree(fresh)

    def confirm(self, draft: Path, made_by: SnapshotMaker, turn: int = 0) -> Snapshot:
        """Make *draft*, which is complete, the current snapshot. If this raises `OSError`, the former one stays."""
        state = self._state()
        parts = tuple(_describe_part(path) for path in sorted(draft.iterdir()))
        snapshot = Snapshot(
            id=draft.name.removeprefix("."),
            session=self._session,
            tier=self._tier,
            at=time.time(),
            boot=boot(),
            turn=turn,
            disk_generation=state.disk_generation,
            made_by=made_by,
            parts=parts,
        )
        self._place(draft, snapshot)
        self._write(msgspec.structs.replace(state, current=snapshot.id))
        self._sweep()
        return snapshot

    def require_usable(self, made_by: SnapshotMaker) -> Snapshot:
        """Return the current snapshot, fully verified: *made_by* may resume it with the present disk.

        Raises:
            SnapshotRefusedError: if there is none, or it was used, is stale, foreign, truncated or damaged.
        """
        snapshot, state = self.current(), self._state()
        if snapshot is None:
            raise SnapshotRefusedError("there is none")
        if why := refusal(snapshot, self._session, made_by, state.disk_generation) or self._damage(snapshot):
            raise SnapshotRefusedError(why)
        return snapshot

    def check_snapshot(self, made_by: Callable[[], SnapshotMaker], *, whole: bool = False) -> SnapshotVerdict | None:
        """Return the current snapshot and whether it can be resumed; None if there is none.

        Args:
            made_by: returns the program that would resume it; may raise a `SandboxError`.
            whole: verify the content of its parts; else only its record and the sizes.
        """
        if (snapshot := self.current()) is None:
            return None
        try:
            why = refusal(snapshot, self._session, made_by(), self._state().disk_generation)
        except SandboxError as error:
            why = error.message.rstrip(".")
        why = why or self._damage(snapshot, whole=whole)
        return SnapshotVerdict(snapshot=snapshot, refused=why, is_this_boot=snapshot.boot == boot())

    def mark_used(self, snapshot: Snapshot) -> None:
        """Mark *snapshot* durably as used: it is about to be resumed, once. Raises as `advance_generation`."""
        fresh = msgspec.structs.replace(snapshot, used_at=time.time())
        with _require_written():
            write_private(self.folder / snapshot.id / RECORD, msgspec.json.encode(fresh))
        self.advance_generation()

    def drop(self) -> None:
        """Remove all snapshots and the disk generation. Idempotent. Raises `OSError` if something cannot be removed."""
        remove_tree(self.folder)

    def copy_to(self, other: "SnapshotStore", snapshot: Snapshot) -> Snapshot:
        """Copy *snapshot* to *other*, which has a copy of its disk; both can be resumed. Raises `SandboxError`."""
        with other.draft() as draft:
            for part in snapshot.parts:
                _copy_file(self.path(snapshot, part.name), draft / part.name)
            return other.confirm(draft, snapshot.made_by, snapshot.turn)

    def _place(self, fresh: Path, snapshot: Snapshot) -> None:
        for part in snapshot.parts:
            (fresh / part.name).chmod(0o600)
            _sync(fresh / part.name)
        write_private(fresh / RECORD, msgspec.json.encode(snapshot))
        _sync(fresh / RECORD)
        _sync(fresh)
        fresh.rename(self.folder / snapshot.id)
        _sync(self.folder)

    def _damage(self, snapshot: Snapshot, *, whole: bool = True) -> str:
        for part in snapshot.parts:
            path = self.path(snapshot, part.name)
            try:
                size = path.stat().st_size
                if size < part.size_bytes:
                    return f"it is truncated: {part.name} has {size} bytes of {part.size_bytes}"
                if size > part.size_bytes or (whole and _describe_part(path) != part):
                    return f"it is damaged: {part.name} has changed since it was written"
            except OSError as error:
                return f"it is damaged: {part.name} cannot be read ({error.strerror})"
        return ""

    def _state(self) -> StoredState:
        """Return the stored state. If it cannot be read, it is unknown which disk fits which snapshot."""
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=StoredState)
        except FileNotFoundError:
            return StoredState()
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError("the record of its memory snapshot cannot be read", str(error)) from error

    def _write(self, state: StoredState) -> None:
        private_folder(self.folder)
        write_private(self.folder / "state.json", msgspec.json.encode(state))
        _sync(self.folder / "state.json")
        _sync(self.folder)

    def _sweep(self) -> None:
        current = self._state().current
        with contextlib.suppress(FileNotFoundError):
            for path in self.folder.iterdir():
                if path.is_dir() and path.name != current:
                    remove_tree(path)


@contextlib.contextmanager
def _require_written() -> Iterator[None]:
    """Turn an error in writing what must precede a run into a `SandboxUnreachableError`."""
    try:
        yield
    except OSError as error:
        why = f"the use of its disk cannot be recorded ({error.strerror or error})"
        raise SandboxUnreachableError(
            "the sandbox was not started", why, "Try again when files can be written."
        ) from error


def _describe_part(path: Path) -> SnapshotPart:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return SnapshotPart(name=path.name, size_bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file; the file system may share its blocks."""
    with source.open("rb") as old, target.open("xb") as new:
        left = os.fstat(old.fileno()).st_size
        while left > 0:
            took = os.copy_file_range(old.fileno(), new.fileno(), left)
            if not took:
                raise OSError(errno.EIO, "it ended too early")
            left -= took


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
