"""Syncs a folder with a sandbox that sees no folder of this machine: changes here go in, changes there come back.

What the sandbox has is recorded in a file on this machine, since the next caller may be another process.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import RefusedError, SandboxError
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.manifest import ManifestEntry
from kasmon.sandbox.checkpoint.scan import ScanBounds, opened, scan
from kasmon.sandbox.remote_guest import file_transfer
from kasmon.sandbox.shared.safe_tree import copy, remove_tree

Files = dict[str, ManifestEntry]


class FolderSync:
    """The sync of one *folder*. Not thread-safe."""

    def __init__(self, folder: str, note: Path) -> None:
        self.folder: Final = folder
        self._note = note

    @property
    def where(self) -> tuple[str, str]:
        """The folder, and the file that records what the sandbox has of it."""
        return self.folder, str(self._note)

    def whole(self) -> bytes:
        """Return all of it as a bundle, and record that the sandbox has it.

        Raises:
            SandboxError: if it cannot be read, or is too large.
        """
        now = self._scan()
        packed = file_transfer.encode_bundle(self.folder, _require_size(now))
        self._record(now)
        return packed

    def changes(self) -> tuple[bytes, Files] | None:
        """Return a bundle of the changes here since the last sync, and the argument for `record_files`, or None.

        Raises:
            SandboxError: if it cannot be read, or is too large.
        """
        known, now = self._load_record(), self._scan()
        if known is None:
            self._record(now)
            return None
        fresh = {path: each for path, each in now.items() if known.get(path) != each}
        gone = tuple(path for path in known if path not in now)
        return (
            (file_transfer.encode_bundle(self.folder, _require_size(fresh), gone, whole=False), now)
            if fresh or gone
            else None
        )

    def copy(self, folder: str, note: Path) -> None:
        """Copy the folder to *folder*, for a copy of the sandbox, which has the same files.

        Raises:
            SandboxError: if it cannot be copied, or is too large.
        """
        remove_tree(Path(folder))
        try:
            owner, bounds = (os.geteuid(), os.getegid()), file_transfer.BOUNDS
            copy(Path(self.folder), Path(folder), owner, limit_bytes=bounds.bytes, limit_entries=bounds.files)
        except (OSError, RefusedError) as error:
            raise SandboxError("the folder was not copied", str(error)) from error
        copied = FolderSync(folder, note)
        copied.record_files(copied._scan() if self.changes() is None else {})

    def record_files(self, now: Files) -> None:
        self._record(now)

    def takes(self, reply: str | bytes) -> tuple[str, ...]:
        """Write the sandbox's changes in *reply* to the folder; return what differs here after that, in sentences.

        A path that was changed here since stays; the sandbox's version is put beside it.

        Raises:
            SandboxError: if *reply* is no bundle, or the folder does not exist.
        """
        given, known = file_transfer.decode_bundle(reply), self._load_record()
        now = self._scan()
        ours = {path for path in now if known is not None and known.get(path) != now[path]}
        missed = file_transfer.apply_bundle(given, self.folder, ours)
        self._record_taken({*given.fresh, *given.gone} - ours, known, whole=given.whole)
        return missed

    def _record_taken(self, paths: Iterable[str], known: Files | None, *, whole: bool) -> None:
        now = self._scan()
        if whole or known is None:
            self._record(now)
            return
        for path in paths:
            known.pop(path, None)
            if path in now:
                known[path] = now[path]
        self._record(known)

    def _scan(self) -> Files:
        with opened(self.folder) as top:
            return scan(top, ScanBounds()).files

    def _load_record(self) -> Files | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return {
                path: ManifestEntry(*each)
                for path, each in msgspec.json.decode(self._note.read_bytes(), type=_FileFacts).items()
            }
        return None

    def _record(self, files: Files) -> None:
        with contextlib.suppress(UnicodeEncodeError):  # a name that is not text was not copied either
            write_private(self._note, msgspec.json.encode(files))


def _require_size(files: Files) -> Files:
    """Return *files*; raises `SandboxError` if they are too large for a bundle."""
    size = sum(each.size for each in files.values())
    if len(files) > file_transfer.BOUNDS.files or size > file_transfer.BOUNDS.bytes:
        why = f"it is too large: {len(files)} files, {size >> 20} MiB"
        raise SandboxError("the folder cannot be copied into the sandbox", why)
    return files


_FileFacts = dict[str, tuple[str, int, int, int, int, int, str]]
