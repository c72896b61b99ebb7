"""Syncs a folder with a sandbox that sees no folder of this machine: changes here go in, changes there come back.

What the sandbox has is recorded in a file on this machine, since the next caller may be another process.

What a sandbox sends is untrusted: it is written beneath one folder through handles, without following links, and cannot
leave that folder. `guest/files.py` is the other half.
"""

import base64
import contextlib
import os
import secrets
import stat
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from kasmon import system
from kasmon.errors import RefusedError, SandboxError
from kasmon.paths import read_json, write_private
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, Files, ManifestEntry, is_proper, parents_first
from kasmon.sandbox.checkpoint.scan import ScanBounds, beneath, opened, opened_file, scan, target
from kasmon.sandbox.shared.safe_tree import copy, remove_tree

BOUNDS: Final = ScanBounds(files=50_000, bytes=256 * 1024 * 1024, seconds=30.0)
"""The most that is copied into a sandbox."""
MODE: Final = 0o777
BESIDE: Final = ".inside"
"""Suffix of the sandbox's version of a file that was changed here meanwhile."""


class BundledFile(msgspec.Struct, frozen=True):
    """One path of a bundle."""

    kind: Literal["f", "d", "l"]
    mode: int
    content: str = ""
    """For a file: base64. For a link: its target."""


class FileBundle(msgspec.Struct, frozen=True):
    whole: bool = True
    """Whether it holds everything: the receiver removes all other paths."""
    gone: tuple[str, ...] = ()
    fresh: dict[str, BundledFile] = {}
    left: dict[str, str] = {}
    """Paths that are not included: path -> why."""


def encode_bundle(folder: str, files: Files, gone: Sequence[str] = (), *, whole: bool = True) -> bytes:
    """Encode *files* of *folder* as a bundle. Raises `SandboxError` if it cannot be read, or a name is not text."""
    fresh: dict[str, BundledFile] = {}
    with opened(folder) as top:
        for path, each in parents_first(files):
            with contextlib.suppress(OSError):  # it changed meanwhile
                content = ""
                if each.kind == LINK:
                    content = os.fsdecode(target(top, path))
                elif each.kind == FILE:
                    with opened_file(top, path) as handle, os.fdopen(os.dup(handle), "rb") as file:
                        content = base64.b64encode(file.read()).decode("ascii")
                kind: Literal["f", "d", "l"] = "f" if each.kind == FILE else "d" if each.kind == FOLDER else "l"
                fresh[path] = BundledFile(kind, each.mode & MODE, content)
    try:
        return msgspec.json.encode(FileBundle(whole=whole, gone=tuple(gone), fresh=fresh))
    except UnicodeEncodeError as error:
        raise SandboxError(
            f"the folder {folder!r} cannot be copied into the sandbox", "a name in it is not text"
        ) from error


def decode_bundle(reply: str | bytes) -> FileBundle:
    """Decode a bundle that a sandbox sent. Raises `SandboxError` if it is invalid."""
    try:
        return msgspec.json.decode(reply, type=FileBundle)
    except msgspec.MsgspecError as error:
        raise SandboxError("the content of the sandbox's workspace is unknown", str(error)) from error


def apply_bundle(bundle: FileBundle, folder: str, ours: Container[str] = frozenset()) -> tuple[str, ...]:
    """Write the sandbox's workspace in *bundle* to *folder*; return what could not be taken over, as sentences.

    *ours*: paths that were changed here meanwhile. They stay; the sandbox's versions are put beside them.

    Raises:
        SandboxError: if *folder* does not exist.
    """
    missed = [f"{path!r} was not fetched: {why}." for path, why in bundle.left.items()]
    with opened(folder) as top:
        gone = set(bundle.gone)
        if bundle.whole:
            gone |= set(scan(top, ScanBounds()).files) - set(bundle.fresh)
        for path in sorted(gone, reverse=True):
            if path in ours:
                missed.append(f"{path!r} was changed here and removed in the sandbox: it is kept, and copied in again.")
            elif is_proper(path):
                with contextlib.suppress(OSError):
                    _remove_path(top, path)
        for path, each in sorted(bundle.fresh.items()):
            try:
                if not is_proper(path):
                    raise OSError("it is not a path in the folder")
                if path in ours and each.kind != "d":
                    missed.append(
                        f"{path!r} was changed here and in the sandbox: the sandbox's version is here as"
                        f" {path + BESIDE!r}."
                    )
                    _write_entry(top, path + BESIDE, each)
                else:
                    _write_entry(top, path, each)
            except (OSError, ValueError) as error:
                missed.append(f"{path!r} was not fetched: {getattr(error, 'strerror', '') or error}.")
    return tuple(missed)


def _write_entry(top: int, path: str, each: BundledFile) -> None:
    above, _, name = path.rpartition("/")
    with beneath(top, above) as handle:
        mode = _mode(handle, name)
        if each.kind == FOLDER:
            if mode is None or not stat.S_ISDIR(mode):
                _remove_entry(handle, name)
                os.mkdir(name, mode=0o700, dir_fd=handle)
            return
        if mode is not None and stat.S_ISDIR(mode):
            _remove_entry(handle, name)
        fresh = f".kasmon-{secrets.token_hex(6)}"
        if each.kind == LINK:
            os.symlink(each.content, fresh, dir_fd=handle)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=handle), "wb") as file:
                file.write(base64.b64decode(each.content, validate=True))
                os.fchmod(file.fileno(), each.mode & MODE)
        os.rename(fresh, name, src_dir_fd=handle, dst_dir_fd=handle)


def _remove_path(top: int, path: str) -> None:
    above, _, name = path.rpartition("/")
    with beneath(top, above) as handle:
        _remove_entry(handle, name)


def _remove_entry(handle: int, name: str) -> None:
    mode = _mode(handle, name)
    if mode is None:
        return
    if not stat.S_ISDIR(mode):
        os.unlink(name, dir_fd=handle)
        return
    with beneath(handle, name) as lower:
        resolved = Path(system.HERE.find_path(lower)).resolve()
    remove_tree(resolved)


def _mode(handle: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


FolderFiles = dict[str, ManifestEntry]


class FolderSync:
    """The sync of one *folder*. Not thread-safe. Each method raises `SandboxError` if the folder cannot be read."""

    def __init__(self, folder: str, note: Path) -> None:
        self.folder: Final = folder
        self._note = note

    @property
    def where(self) -> tuple[str, str]:
        """The folder, and the file that records what the sandbox has of it."""
        return self.folder, str(self._note)

    def whole(self) -> bytes:
        """Return all of it as a bundle, and record that the sandbox has it. A folder that is too large is refused."""
        now = self._scan()
        packed = encode_bundle(self.folder, _require_size(now))
        self.record_files(now)
        return packed

    def changes(self) -> tuple[bytes, FolderFiles] | None:
        """Return a bundle of the changes here since the last sync, and the argument for `record_files`, or None."""
        known, now = self._load_record(), self._scan()
        if known is None:
            self.record_files(now)
            return None
        fresh = {path: each for path, each in now.items() if known.get(path) != each}
        gone = tuple(path for path in known if path not in now)
        return (encode_bundle(self.folder, _require_size(fresh), gone, whole=False), now) if fresh or gone else None

    def copy(self, other: "FolderSync") -> None:
        """Copy the folder to that of *other*, for a copy of the sandbox, which has the same files."""
        target, owner = Path(other.folder), (os.geteuid(), os.getegid())
        remove_tree(target)
        try:
            copy(Path(self.folder), target, owner, limit_bytes=BOUNDS.bytes, limit_entries=BOUNDS.files)
        except (OSError, RefusedError) as error:
            raise SandboxError("the folder was not copied", str(error)) from error
        other.record_files(other._scan() if self.changes() is None else {})

    def takes(self, reply: str | bytes) -> tuple[str, ...]:
        """Write the sandbox's changes in *reply* to the folder; return what differs here after that, in sentences.

        A path that was changed here since stays; the sandbox's version is put beside it.

        Raises:
            SandboxError: if *reply* is no bundle, or the folder does not exist.
        """
        given, known = decode_bundle(reply), self._load_record()
        now = self._scan()
        ours = {path for path in now if known is not None and known.get(path) != now[path]}
        missed = apply_bundle(given, self.folder, ours)
        self._record_taken({*given.fresh, *given.gone} - ours, known, whole=given.whole)
        return missed

    def _record_taken(self, paths: Iterable[str], before: FolderFiles | None, *, whole: bool) -> None:
        now = self._scan()
        if whole or before is None:
            self.record_files(now)
            return
        for path in paths:
            before.pop(path, None)
            if path in now:
                before[path] = now[path]
        self.record_files(before)

    def _scan(self) -> FolderFiles:
        with opened(self.folder) as top:
            return scan(top, ScanBounds()).files

    def _load_record(self) -> FolderFiles | None:
        facts = read_json(self._note, _FileFacts, None)
        return None if facts is None else {path: ManifestEntry(*each) for path, each in facts.items()}

    def record_files(self, files: FolderFiles) -> None:
        """Record *files* as what the sandbox has."""
        with contextlib.suppress(UnicodeEncodeError):  # a name that is not text was not copied either
            write_private(self._note, msgspec.json.encode(files))


def _require_size(files: FolderFiles) -> FolderFiles:
    """Return *files*; raises `SandboxError` if they are too large for a bundle."""
    size = sum(each.size for each in files.values())
    if len(files) > BOUNDS.files or size > BOUNDS.bytes:
        why = f"it is too large: {len(files)} files, {size >> 20} MiB"
        raise SandboxError("the folder cannot be copied into the sandbox", why)
    return files


_FileFacts = dict[str, tuple[str, int, int, int, int, int, str]]
