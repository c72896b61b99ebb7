"""The checkpoints of one session, in kasmon's own folder: files, a git commit of them, and saved interpreter state.

Stored are whole files, modes, empty folders, symlinks, and also what git ignores or reserves (`.git`). A file unchanged
since the last checkpoint costs one stat call. Not stored are owners, hard links as such, extended attributes, pipes,
sockets and devices; `left` names those that were there. A checkpoint is confirmed by its record, which is written after
all its content. One process at a time may use it: the session's host.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import GitError, NotFoundError, RefusedError, SandboxError, TimedOutError
from kasmon.paths import private_folder
from kasmon.sandbox.checkpoint import manifest as manifests
from kasmon.sandbox.checkpoint.atomic_swap import FolderSwap, exchange, load_unfinished, resume
from kasmon.sandbox.checkpoint.manifest import Manifest
from kasmon.sandbox.checkpoint.object_store import ObjectStore, apply_top_modes, unpack
from kasmon.sandbox.checkpoint.records import CheckpointList, CheckpointRecord, CheckpointRecords
from kasmon.sandbox.checkpoint.scan import ScanBounds, describe_skipped, opened, scan
from kasmon.sandbox.guest_client.protocol import CheckpointTime, SavedInterpreters
from kasmon.sandbox.shared.safe_tree import remove_tree

TIDY_AFTER: Final = 20
"""After so many dropped checkpoints their disk space is freed together."""
DEFAULT_BOUNDS: Final = ScanBounds()
OLDEST: Final = "The oldest checkpoints are deleted over time."

GIB = 1024 * 1024 * 1024


class RetentionLimits(NamedTuple):
    """How many checkpoints of one session are retained."""

    newest: int = 100
    asked: int = 20
    bytes: int = 4 * GIB
    """On disk, for all together; beyond it the older half is dropped."""


DEFAULT_LIMITS: Final = RetentionLimits()


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint: CheckpointRecord
    undo: str = ""
    """The checkpoint of what was there before; empty where that could not be stored."""
    why_not: str = ""
    """Why there is no *undo* checkpoint."""


class CheckpointStore:
    """The checkpoints of one session. All calls block."""

    def __init__(
        self,
        folder: Path,
        *,
        bounds: ScanBounds = DEFAULT_BOUNDS,
        limits: RetentionLimits = DEFAULT_LIMITS,
    ) -> None:
        """*folder* is created, 0700, when something is first stored in it."""
        self.folder, self._bounds, self._limits = folder, bounds, limits
        self._records, self._objects = CheckpointRecords(folder), ObjectStore(folder / "git")
        self._note = folder / "swap.json"
        self._last: tuple[str, Manifest] | None = None

    def all(self) -> tuple[CheckpointRecord, ...]:
        """Return all checkpoints, oldest first."""
        return self._records.records().checkpoints

    def find(self, checkpoint: str) -> CheckpointRecord:
        """Return the checkpoint of this id. Raises `NotFoundError` if there is none, or it was dropped."""
        record = next((each for each in self.all() if each.id == checkpoint), None)
        if record is None:
            raise NotFoundError(f"there is no checkpoint {checkpoint!r}.", hint=OLDEST)
        return record

    def create(
        self,
        workspace: str,
        turn: int,
        when: CheckpointTime,
        saved: SavedInterpreters,
        /,
        mapped: Callable[[], Container[int]] = frozenset,
        *,
        drops: bool = True,
    ) -> CheckpointRecord:
        """Store what is in *workspace*, and the interpreter state *saved*.

        Args:
            mapped: returns the inodes of files that a process has mapped writable: their times do not show its writes.
            drops: whether checkpoints beyond the limits are dropped after that; not before a restore, whose own may be
                the oldest.

        Raises:
            SandboxError: if the workspace is too large, or cannot be read.
            GitError, TimedOutError: if git failed. Nothing is stored then, and earlier checkpoints stay.
        """
        self.finish()
        private_folder(self.folder)
        records, at = self._records.records(), time.time()
        before = self._find_newest(records)
        started_ns = time.time_ns()
        mapped_inodes = mapped()  # after `started_ns`: a later mapping gives the file a later time
        name = holder = f"c{records.counted + 1}"
        with opened(workspace) as top:
            scanned = scan(top, self._bounds)
            known, fresh = manifests.find_unread(scanned.files, before and before[1], mapped_inodes)
            if before and not fresh and known == before[1].files:
                last, skipped = before[0], scanned.left
                commit, digest, size, holder = last.commit, last.sha256, last.size_bytes, last.holder
            else:
                files, commit, unread = self._objects.store(top, known, fresh, name, at, f"{when} turn {turn}")
                skipped = scanned.left + unread
                whole = Manifest(started_ns, manifests.mark_unsettled(files, mapped_inodes))
                if before and manifests.content(files) == manifests.content(before[1].files):
                    commit, holder = before[0].commit, before[0].holder
                size = whole.size
                digest = self._records.put("manifests", manifests.encode(whole))
                self._last = (digest, whole)
        checkpoint = CheckpointRecord(
            id=name,
            commit=commit,
            size_bytes=size,
            turn=turn,
            when=when,
            at=at,
            sha256=digest,
            state=self._records.put("state", saved.content) if saved.content else "",
            kept=saved.kept,
            lost=saved.lost,
            holder=holder,
            left=describe_skipped(skipped),
        )
        all_records = (*records.checkpoints, checkpoint)
        self._records.write(msgspec.structs.replace(records, counted=records.counted + 1, checkpoints=all_records))
        with contextlib.suppress(GitError, TimedOutError, OSError):  # space is freed another time
            if drops:
                self._apply_retention(is_new=holder == name)
        return checkpoint

    def restore(self, checkpoint: str, workspace: str, /) -> RestoreResult:
        """Replace the files in *workspace* by those of *checkpoint*, completely or not at all.

        The current files are stored first. No process may write there meanwhile.

        Raises:
            NotFoundError: if there is no such checkpoint.
            SandboxError, GitError: if it failed; *workspace* is unchanged, or the error says where its content is.
        """
        point = self.find(checkpoint)
        undo = why_not = ""
        try:
            undo = self.create(workspace, point.turn, "asked", SavedInterpreters(), drops=False).id
        except (SandboxError, GitError, TimedOutError) as error:  # too large a workspace may be the reason to restore
            why_not = error.message
        manifest = self._manifest(point)
        new = old = ""
        try:
            new, old = (tempfile.mkdtemp(prefix=".kasmon-", dir=Path(workspace).parent) for _ in range(2))
            if os.geteuid() == 0:
                owner = Path(workspace).lstat()
                os.chown(new, owner.st_uid, owner.st_gid)
            unpack(self._objects, manifest, new)
            exchange(FolderSwap(folder=workspace, new=new, old=old), self._note)
        except OSError as error:
            what, why = f"checkpoint {checkpoint!r} could not be restored", error.strerror or str(error)
            raise SandboxError(what, why, "Nothing was changed.") from error
        finally:
            if load_unfinished(self._note) is None:
                _remove(*filter(None, (new, old)))
        apply_top_modes(manifest, workspace)
        return RestoreResult(checkpoint=point, undo=undo, why_not=why_not)

    def finish(self) -> None:
        """Finish another process's restore; before a sandbox is made or adopted. After an error, call it again."""
        swap = load_unfinished(self._note)
        if swap is not None:
            resume(swap, self._note)
            _remove(swap.new, swap.old)

    def fork(self, checkpoint: str, folder: str, /) -> CheckpointRecord:
        """Copy the files of *checkpoint* into *folder*, which is empty or does not exist yet.

        Raises:
            NotFoundError: if there is no such checkpoint.
            RefusedError: if *folder* is not empty.
            SandboxError, GitError: if not all could be copied; *folder* may hold a part of it.
        """
        point = self.find(checkpoint)
        manifest = self._manifest(point)
        path = Path(folder)
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            is_empty = not any(path.iterdir())
        except OSError as error:
            raise SandboxError(f"cannot fork into {folder!r}", error.strerror or str(error)) from error
        if not is_empty:
            raise RefusedError(f"cannot fork into {folder!r}: it is not empty.")
        unpack(self._objects, manifest, folder)
        apply_top_modes(manifest, folder)
        return point

    def state(self, checkpoint: str, /) -> bytes:
        """Return the saved interpreter state; empty where none was saved, or it was purged.

        Raises:
            NotFoundError: if there is no such checkpoint.
            SandboxError: if it is damaged.
        """
        point = self.find(checkpoint)
        return self._records.get("state", point.state) if point.state else b""

    def diff(self, turn: int) -> str:
        """Return what *turn* changed in the files, as a unified diff of at most a megabyte; its text is untrusted.

        It compares the checkpoint before the turn, else the newest of an earlier turn, with the newest after it.

        Raises:
            NotFoundError: if there is no checkpoint after that turn, or none before it.
            GitError, TimedOutError: if git fails.
        """
        after = before = None
        for each in self.all():
            if each.turn == turn and each.when == "after":
                after = each
            elif (each.turn == turn and each.when == "before") or (each.turn < turn and each.when != "asked"):
                before = each
        if after is None or before is None:
            raise NotFoundError(f"there are no checkpoints for the changes of turn {turn}.", hint=OLDEST)
        return "" if before.commit == after.commit else self._objects.diff(before.commit, after.commit)

    def purge_memory(self) -> None:
        """Delete all saved interpreter state; files and their history stay. For the end of a session."""
        records = self._records.records()
        purged = tuple(msgspec.structs.replace(each, state="") for each in records.checkpoints)
        if purged != records.checkpoints:
            self._records.write(msgspec.structs.replace(records, checkpoints=purged))
        self._records.sweep("state", set())

    def purge(self) -> None:
        """Remove everything. Idempotent."""
        self.finish()
        _remove(str(self.folder))

    def _find_newest(self, records: CheckpointList) -> tuple[CheckpointRecord, Manifest] | None:
        """Return the newest checkpoint with its manifest; None where there is none that can be read."""
        with contextlib.suppress(SandboxError, IndexError):
            return records.checkpoints[-1], self._manifest(records.checkpoints[-1])
        return None

    def _manifest(self, point: CheckpointRecord) -> Manifest:
        if self._last is None or self._last[0] != point.sha256:
            try:
                self._last = (point.sha256, manifests.decode(self._records.get("manifests", point.sha256)))
            except (ValueError, TypeError, KeyError) as error:
                raise SandboxError(f"checkpoint {point.id!r} is damaged", str(error)) from error
        return self._last[1]

    def _apply_retention(self, *, is_new: bool) -> None:
        """Drop checkpoints beyond the limits, and free their disk space when that is worth it."""
        records = self._records.records()
        too_much = is_new and self._objects.size > self._limits.bytes
        dropped_ids = select_dropped(records.checkpoints, self._limits, too_much=too_much)
        if dropped_ids:
            retained = tuple(each for each in records.checkpoints if each.id not in dropped_ids)
            records = msgspec.structs.replace(records, checkpoints=retained, dropped=records.dropped + len(dropped_ids))
            self._records.write(records)
            self._records.sweep("manifests", {each.sha256 for each in retained})
            self._records.sweep("state", {each.state for each in retained})
        if records.dropped >= TIDY_AFTER or (too_much and dropped_ids):
            self._objects.drop(self._objects.names() - {each.holder for each in records.checkpoints})
            self._objects.tidy()
            self._records.write(msgspec.structs.replace(records, dropped=0))


def select_dropped(
    checkpoints: Sequence[CheckpointRecord], limits: RetentionLimits, *, too_much: bool = False
) -> set[str]:
    """Return the ids to drop of *checkpoints*, oldest first; with *too_much* on disk also the older half.

    The first one and the newest one always stay.
    """
    newest = max(1, min(limits.newest, len(checkpoints) // 2)) if too_much else max(1, limits.newest)
    asked = [each.id for each in checkpoints if each.when == "asked"][-limits.asked or len(checkpoints) :]
    retained = {each.id for each in (*checkpoints[:1], *checkpoints[-newest:])} | (set() if too_much else set(asked))
    return {each.id for each in checkpoints} - retained


def _remove(*folders: str) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            remove_tree(Path(folder))
