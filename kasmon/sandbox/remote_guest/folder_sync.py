"""What a sandbox that sees no folder of ours has of one: so what is changed here goes in, and what changes there comes.

What it has is noted in a file of ours: whoever asks next may be another process.
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
from kasmon.sandbox.shared.safe_tree import copy, raze

Files = dict[str, ManifestEntry]


class FolderSync:
    """One *folder*. Not for several threads at once."""

    def __init__(self, folder: str, note: Path) -> None:
        self.folder: Final = folder
        self._note = note

    @property
    def where(self) -> tuple[str, str]:
        """The folder, and where it is noted what the sandbox has of it."""
        return self.folder, str(self._note)

    def whole(self) -> bytes:
        """All of it, as a gift; that is what the sandbox has from now on.

        Raises:
            SandboxError: if it cannot be looked at, or is too much.
        """
        now = self._seen()
        packed = file_transfer.packed(self.folder, _fitting(now))
        self._has(now)
        return packed

    def changes(self) -> tuple[bytes, Files] | None:
        """What was changed here since the sandbox had it, as a gift, and what goes to `gave`; None where nothing was.

        Raises:
            SandboxError: if it cannot be looked at, or is too much.
        """
        known, now = self._known(), self._seen()
        if known is None:
            self._has(now)
            return None
        fresh = {path: each for path, each in now.items() if known.get(path) != each}
        gone = tuple(path for path in known if path not in now)
        return (file_transfer.packed(self.folder, _fitting(fresh), gone, whole=False), now) if fresh or gone else None

    def copy(self, folder: str, note: Path) -> None:
        """Have the same in *folder*, for a copy of the sandbox, which has the same in it.

        Raises:
            SandboxError: if it cannot be copied, or is too much.
        """
        raze(Path(folder))
        try:
            owner, bounds = (os.geteuid(), os.getegid()), file_transfer.BOUNDS
            copy(Path(self.folder), Path(folder), owner, limit_bytes=bounds.bytes, limit_entries=bounds.files)
        except (OSError, RefusedError) as error:
            raise SandboxError("the folder was not copied", str(error)) from error
        copied = FolderSync(folder, note)
        copied.gave(copied._seen() if self.changes() is None else {})

    def gave(self, now: Files) -> None:
        """The sandbox has *now*."""
        self._has(now)

    def takes(self, said: str | bytes) -> tuple[str, ...]:
        """Write here what the sandbox *said* has changed in it; what of it is not here as it is there, in sentences.

        What was changed here since keeps its name, and what comes lies beside it.

        Raises:
            SandboxError: if it is no gift, or the folder is not there.
        """
        given, known = file_transfer.received(said), self._known()
        now = self._seen()
        ours = {path for path in now if known is not None and known.get(path) != now[path]}
        missed = file_transfer.taken(given, self.folder, ours)
        self._took({*given.fresh, *given.gone} - ours, known, whole=given.whole)
        return missed

    def _took(self, paths: Iterable[str], known: Files | None, *, whole: bool) -> None:
        now = self._seen()
        if whole or known is None:
            self._has(now)
            return
        for path in paths:
            known.pop(path, None)
            if path in now:
                known[path] = now[path]
        self._has(known)

    def _seen(self) -> Files:
        with opened(self.folder) as top:
            return scan(top, ScanBounds()).files

    def _known(self) -> Files | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return {
                path: ManifestEntry(*each)
                for path, each in msgspec.json.decode(self._note.read_bytes(), type=_Noted).items()
            }
        return None

    def _has(self, files: Files) -> None:
        with contextlib.suppress(UnicodeEncodeError):  # a name that is no text went nowhere
            write_private(self._note, msgspec.json.encode(files))


def _fitting(files: Files) -> Files:
    """
    Raises:
        SandboxError: if *files* are too much for a gift.
    """
    size = sum(each.size for each in files.values())
    if len(files) > file_transfer.BOUNDS.files or size > file_transfer.BOUNDS.bytes:
        why = f"it is too large: {len(files)} files, {size >> 20} MiB"
        raise SandboxError("the folder cannot be copied into the sandbox", why)
    return files


_Noted = dict[str, tuple[str, int, int, int, int, int, str]]
