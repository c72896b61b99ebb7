"""Writes the files of a manifest into a new folder; follows no link, overwrites nothing, and stays inside it."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from kasmon.errors import SandboxError
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, Manifest, ManifestEntry, parents_first
from kasmon.sandbox.checkpoint.object_store import ObjectStore
from kasmon.sandbox.checkpoint.scan import beneath, opened

MODE: Final = 0o1777
"""The mode bits that are restored; set-user-ID and set-group-ID are not."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(objects: ObjectStore, manifest: Manifest, folder: str) -> None:
    """Write all of *manifest* into *folder*, which is empty and kasmon's; all entries get the folder's owner.

    Raises:
        SandboxError, GitError: if not all of it could be written; the part that was written stays.
    """
    ordered = list(parents_first(manifest.files))
    contents = objects.contents([each.blob for _, each in ordered if each.kind != FOLDER])
    try:
        with opened(folder) as top, contextlib.closing(contents):
            status = os.fstat(top)
            owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
            for path, each in ordered:
                above, _, name = path.rpartition("/")
                with beneath(top, above) as handle:
                    if each.kind == FOLDER:
                        os.mkdir(name, mode=0o700, dir_fd=handle)
                    elif each.kind == LINK:
                        os.symlink(b"".join(next(contents)), os.fsencode(name), dir_fd=handle)
                        if owner:
                            os.chown(name, *owner, dir_fd=handle, follow_symlinks=False)
                    else:
                        _write_file(handle, name, each, next(contents), owner)
            for path, each in reversed(ordered):
                if each.kind == FOLDER:
                    with beneath(top, path) as handle:
                        apply_mode(handle, each.mode if "/" in path else each.mode | 0o700, owner)
    except OSError as error:
        why = error.strerror or str(error)
        raise SandboxError(f"the checkpoint could not be written into {folder!r}", why) from error


def apply_top_modes(manifest: Manifest, folder: str) -> None:
    """Apply the modes of the top-level folders of *folder*, once they are in their final place.

    Until then they keep owner permissions, so that their owner can move them.
    """
    with opened(folder) as top:
        for path, each in manifest.files.items():
            if each.kind == FOLDER and "/" not in path and each.mode & 0o700 != 0o700:
                with contextlib.suppress(OSError), beneath(top, path) as handle:
                    apply_mode(handle, each.mode, None)


def apply_mode(handle: int, mode: int, owner: tuple[int, int] | None) -> None:
    """Apply owner and mode to the folder open at *handle*."""
    if owner:
        os.fchown(handle, *owner)
    os.fchmod(handle, mode & MODE)


def _write_file(
    above: int, name: str, each: ManifestEntry, pieces: Iterator[bytes], owner: tuple[int, int] | None
) -> None:
    assert each.kind == FILE
    handle = os.open(name, _NEW, 0o600, dir_fd=above)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(handle, rest) :]
        if owner:
            os.fchown(handle, *owner)
        os.fchmod(handle, each.mode & MODE)
        os.utime(handle, ns=(each.mtime, each.mtime))
    finally:
        os.close(handle)
