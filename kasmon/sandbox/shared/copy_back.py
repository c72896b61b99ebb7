"""Copies changes in a sandbox's copy of a folder back into that folder, and leaves unchanged files alone.

If only root may write to a folder, a sandbox works on a copy (`shared/host_folders`) that the user can inspect. A
plan's tasks build on one another, so the changes of each are copied back. Three sides are compared: the folder when the
copy was made, the copy, and the folder now. Git's own files are skipped: a sandbox must not tell git what to run.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, ManifestEntry, is_in_history
from kasmon.sandbox.checkpoint.scan import opened, opened_file, scan, target
from kasmon.sandbox.remote_guest import folder_sync

FileStates = dict[str, tuple[str, bool, str]]
"""Path -> its kind, whether it is executable, and its content's digest."""
DIR: Final = (FOLDER, False, "")
BLOCK_BYTES: Final = 1 << 20
RUNS: Final = 0o111


def store_folder_state(folder: Path, note: Path) -> None:
    """Store in the file *note* the present state of *folder*, of which a copy is about to be made.

    Raises:
        SandboxError: if it cannot be read, or is too large.
        OSError: if *note* cannot be written.
    """
    write_private(note, msgspec.json.encode(_scan(folder)[0]))


def fetched(copy: Path, folder: Path, note: Path) -> tuple[str, ...]:
    """Bring the changes in *copy* into *folder* since *note* was written, by `store_folder_state` or by the last call.

    Returns:
        What differs between *folder* and the copy after that, in sentences. A path that changed on both sides keeps its
        version in *folder*, and the copy's version is put beside it. Empty if the folder has no copy.

    Raises:
        SandboxError: if one of the two cannot be read, or is too large.
        OSError: if *note* cannot be written.
    """
    if not copy.is_dir() or not note.is_file():
        return ()
    try:
        known = msgspec.json.decode(note.read_bytes(), type=FileStates)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SandboxError("changes in the sandbox were not fetched", str(error)) from error
    theirs, entries = _scan(copy)
    fresh = {path for path, each in theirs.items() if known.get(path) != each}
    gone = {path for path in known if path not in theirs}
    if not fresh | gone:
        return ()
    ours, have = _scan(folder, fresh | gone)
    both = {path for path in fresh | gone if ours.get(path) not in (known.get(path), theirs.get(path))}
    strange = both | {path for path in have if path not in known}  # a folder that contains one of these must stay
    both |= {
        above for path in strange for above in _parents_of(path) if above in fresh | gone and theirs.get(above) != DIR
    }
    come = {path: _as_there(entries[path], have.get(path)) for path in fresh if ours.get(path) != theirs[path]}
    left = tuple(path for path in gone if path in ours)
    missed = folder_sync.apply_bundle(
        folder_sync.decode_bundle(folder_sync.encode_bundle(str(copy), come, left, whole=False)), str(folder), both
    )
    write_private(note, msgspec.json.encode(theirs))
    return missed


def _scan(folder: Path, of: set[str] | None = None) -> tuple[FileStates, dict[str, ManifestEntry]]:
    """Return the state of *folder*, reading only paths in *of*; skips names that are not text, and git's files."""
    seen: FileStates = {}
    with opened(str(folder)) as top:
        found = scan(top, folder_sync.BOUNDS).files
        entries = {path: each for path, each in found.items() if is_in_history(path) and _is_text(path)}
        for path, each in entries.items():
            if each.kind == FOLDER:
                seen[path] = DIR
            elif of is None or path in of:
                seen[path] = (each.kind, each.kind == FILE and bool(each.mode & RUNS), _digest(top, path, each))
    return seen, entries


def _digest(top: int, path: str, each: ManifestEntry) -> str:
    digest = hashlib.sha256()
    try:
        if each.kind == LINK:
            digest.update(target(top, path))
        elif each.kind == FILE:
            with opened_file(top, path) as handle:
                while block := os.read(handle, BLOCK_BYTES):
                    digest.update(block)
    except OSError as error:
        raise SandboxError(f"{path!r} cannot be read", error.strerror or str(error)) from error
    return digest.hexdigest()


def _parents_of(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _as_there(fresh: ManifestEntry, before: ManifestEntry | None) -> ManifestEntry:
    """Return *fresh* with the permissions outside: those of a copy are its owner's alone."""
    mode = before.mode if before is not None and before.kind == FILE else 0o644
    return fresh._replace(mode=mode | RUNS if fresh.mode & RUNS else mode & ~RUNS)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
