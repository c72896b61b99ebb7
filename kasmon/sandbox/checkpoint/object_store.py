"""Stores file contents and commits in a git repository of kasmon's own. Git never sees the source folder.

`scan.py` reads the files, and `git fast-import` gets them as named bytes. So hooks, filters, attributes, ignore files,
file watchers or nested repositories of that folder have no effect. A commit has no parent: the checkpoint's record
knows the order, and an old commit can be dropped.
"""

import contextlib
import hashlib
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from kasmon.errors import GitError, SandboxError
from kasmon.repository.own_git import run_git
from kasmon.sandbox.checkpoint.manifest import FILE, FOLDER, LINK, Manifest, ManifestEntry, is_in_history, parents_first
from kasmon.sandbox.checkpoint.scan import SkippedFiles, beneath, entry, opened, opened_file, target

PIECE_BYTES: Final = 256 * 1024
LONGEST_DIFF: Final = 1024 * 1024
"""Bytes; a longer diff is truncated, with a note at its end."""
MODES: Final = {(FILE, False): b"100644", (FILE, True): b"100755", (LINK, False): b"120000", (LINK, True): b"120000"}
COMMITTER: Final = b"kasmon <kasmon@localhost>"


class ObjectStore:
    """The repository at *folder*, created when something is first stored. One process at a time may write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def store(
        self, top: int, base: dict[str, ManifestEntry], fresh: Iterable[str], name: str, at: float, message: str
    ) -> tuple[dict[str, ManifestEntry], str, list[SkippedFiles]]:
        """Store the contents of *fresh* beneath *top*, and a commit of all paths.

        Args:
            top: the descriptor of the folder that they are in.
            base: all of its paths; the contents of those not in *fresh* are stored already.
            fresh: the paths whose contents are to be read.
            name: the name to store them under, for `drop`.
            at: the commit's time, in seconds since the epoch.

        Returns:
            all paths with their content hashes, the commit's SHA, and the files that could not be read.

        Raises:
            GitError, TimedOutError: if git fails; nothing is stored then.
        """
        self._create()
        skipped: list[SkippedFiles] = []
        files = dict(base)
        with run_git(self.folder, "fast-import", "--quiet", "--done", "--force") as (stdin, stdout):
            stdin.write(b"feature done\n")
            for path in fresh:
                try:
                    files[path] = _send(stdin, top, path, files[path], skipped)
                except OSError as error:
                    del files[path]
                    skipped.append(SkippedFiles(path, error.strerror or str(error)))
            plain = {path: each for path, each in files.items() if each.kind != FOLDER}
            in_history = {path: each for path, each in plain.items() if is_in_history(path)}
            others = {each.blob for path, each in plain.items() if path not in in_history}
            _commit(stdin, f"refs/kasmon/{name}/files", at, message, _lines(in_history))
            stdin.write(b"get-mark :1\n")
            stdin.flush()
            commit = stdout.readline().decode("ascii", "replace").strip()
            if others:
                rest = (b"M 100644 %b %b\n" % (blob.encode(), blob.encode()) for blob in sorted(others))
                _commit(stdin, f"refs/kasmon/{name}/rest", at, "what git keeps for itself elsewhere", rest)
            stdin.write(b"done\n")
        if len(commit) != 40:
            raise GitError("store a checkpoint", "it named no commit")
        return files, commit, skipped

    def contents(self, blobs: Iterable[str]) -> Generator[Iterator[bytes], None, None]:
        """Yield the content of each of *blobs*, in pieces; the caller must read each one fully before the next.

        Raises:
            SandboxError: if one is missing, or its hash does not match.
        """
        with run_git(self.folder, "cat-file", "--batch") as (stdin, stdout):
            for blob in blobs:
                stdin.write(f"{blob}\n".encode())
                stdin.flush()
                head = stdout.readline().split()
                if len(head) != 3 or head[1] != b"blob":
                    raise SandboxError("the checkpoint is damaged", f"the content {blob} is missing")
                yield _content(stdout, blob, int(head[2]))
                stdout.read(1)

    def diff(self, before: str, after: str) -> str:
        """Return the changes from commit *before* to commit *after* as a unified diff; the text is untrusted.

        Raises:
            GitError, TimedOutError: if git fails.
        """
        arguments = (
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--full-index",
            before,
            after,
            "--",
        )
        with run_git(self.folder, *arguments, may_be_cut=True) as (_, stdout):
            text = stdout.read(LONGEST_DIFF + 1)
        shown = text[:LONGEST_DIFF].decode("utf-8", "replace")
        return f"{shown}\n(cut after {LONGEST_DIFF} bytes)\n" if len(text) > LONGEST_DIFF else shown

    def drop(self, names: Iterable[str]) -> None:
        """Unreference what was stored as *names*; `tidy` frees the disk space."""
        refs = "".join(f"delete refs/kasmon/{name}/{part}\n" for name in names for part in ("files", "rest"))
        if refs and self.folder.exists():
            with run_git(self.folder, "update-ref", "--stdin") as (stdin, _):
                stdin.write(refs.encode())

    def names(self) -> set[str]:
        if not self.folder.exists():
            return set()
        with run_git(self.folder, "for-each-ref", "--format=%(refname)", "refs/kasmon/") as (_, stdout):
            return {line.split("/")[2] for line in stdout.read().decode().splitlines()}

    def tidy(self) -> None:
        """Free the disk space of unreferenced objects."""
        for arguments in (("repack", "-a", "-d", "-q"), ("prune", "--expire=now")):
            with run_git(self.folder, *arguments):
                pass

    @property
    def size(self) -> int:
        """The size of all objects on disk, in bytes."""
        total = 0
        for folder, _, files in os.walk(self.folder / "objects"):
            total += sum(os.lstat(os.path.join(folder, file)).st_size for file in files)  # noqa: PTH118 (thousands)
        return total

    def _create(self) -> None:
        if not (self.folder / "HEAD").exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with run_git(self.folder, "init", "--quiet", "--bare", "--template="):
                pass


def _send(stdin: IO[bytes], top: int, path: str, seen: ManifestEntry, skipped: list[SkippedFiles]) -> ManifestEntry:
    """Send the content of *path* to git; return its entry. Raises `OSError` if it is not the file *seen*."""
    if seen.kind == LINK:
        text = target(top, path)
        stdin.write(b"blob\ndata %d\n%b\n" % (len(text), text))
        return seen._replace(blob=_name(text))
    with opened_file(top, path) as handle:
        for _ in range(2):
            before = entry(os.fstat(handle))
            if before is None or before.inode != seen.inode:
                raise OSError("it was replaced while it was read")
            sent = before._replace(blob=_stream_file(stdin, handle, before.size))
            if entry(os.fstat(handle)) == before:
                return sent
    skipped.append(SkippedFiles(path, "saved while it was being changed"))
    return sent._replace(ctime=0)  # read again next time


def _stream_file(stdin: IO[bytes], handle: int, size: int) -> str:
    """Send *size* bytes of *handle* from its start, padded with zeros where it has fewer; return the blob's id."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    stdin.write(b"blob\ndata %d\n" % size)
    at = 0
    while at < size:
        piece = os.pread(handle, min(PIECE_BYTES, size - at), at) or bytes(min(PIECE_BYTES, size - at))
        digest.update(piece)
        stdin.write(piece)
        at += len(piece)
    stdin.write(b"\n")
    return digest.hexdigest()


def _name(text: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()


def _content(stdout: IO[bytes], blob: str, size: int) -> Iterator[bytes]:
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while size > 0:
        piece = stdout.read(min(PIECE_BYTES, size))
        if not piece:
            break
        size -= len(piece)
        digest.update(piece)
        yield piece
    if digest.hexdigest() != blob:
        raise SandboxError("the checkpoint is damaged", f"the content {blob} is not what it was")


def _commit(stdin: IO[bytes], ref: str, at: float, message: str, lines: Iterable[bytes]) -> None:
    text = message.encode()
    mark = b"mark :1\n" if ref.endswith("/files") else b""
    stdin.write(b"commit %b\n%bcommitter %b %d +0000\n" % (ref.encode(), mark, COMMITTER, int(at)))
    stdin.write(b"data %d\n%b\n" % (len(text), text))
    stdin.writelines(lines)
    stdin.write(b"\n")


def _lines(files: Mapping[str, ManifestEntry]) -> Iterator[bytes]:
    for path, each in files.items():
        yield b"M %b %b %b\n" % (MODES[each.kind, bool(each.mode & 0o100)], each.blob.encode(), _quote(path))


def _quote(path: str) -> bytes:
    odd = (*range(0x20), *b'"\\')
    inner = b"".join(b"\\%03o" % byte if byte in odd else bytes((byte,)) for byte in os.fsencode(path))
    return b'"' + inner + b'"'


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
    """Apply owner and mode to the folder or file open at *handle*."""
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
        apply_mode(handle, each.mode, owner)
        os.utime(handle, ns=(each.mtime, each.mtime))
    finally:
        os.close(handle)
