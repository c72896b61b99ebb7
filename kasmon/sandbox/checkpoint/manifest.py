"""Manifests: each path of a folder at one moment, with its kind, mode, size, times and the hash of its content. Pure.

Git's own trees hold no empty folders, no mode but one bit, no `.git` and no times; a manifest does. A path is a `str`
as Python's `os` functions return it (surrogates where it is no UTF-8), relative, without `.` and `..`.
"""

import json
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

FILE: Final = "f"
FOLDER: Final = "d"
LINK: Final = "l"
KINDS: Final = frozenset({FILE, FOLDER, LINK})
RACY_NS: Final = 50_000_000
"""A file that changed this shortly before its scan may have changed again within the same tick of its clock."""


class ManifestEntry(NamedTuple):
    """One path's kind, metadata and content hash."""

    kind: str
    mode: int
    """Its permission bits."""
    size: int
    mtime: int
    """In nanoseconds, as all times here."""
    ctime: int
    inode: int
    blob: str = ""
    """Git's id of the content: a file's, or a link's target. Empty for a folder, and where it was not read yet."""


Files: TypeAlias = Mapping[str, ManifestEntry]


class Manifest(NamedTuple):
    """All paths of a folder."""

    at: int
    """When the scan began."""
    files: dict[str, ManifestEntry]

    @property
    def size(self) -> int:
        """The total size of all its files, in bytes."""
        return sum(entry.size for entry in self.files.values() if entry.kind == FILE)


def find_unread(
    seen: Files, before: Manifest | None, mapped: Container[int] = frozenset()
) -> tuple[dict[str, ManifestEntry], list[str]]:
    """Return *seen* with the content hashes known from *before*, and the paths whose contents must be read.

    Files whose inode is in *mapped* always must: processes write to them without a change of their times.
    """
    known, fresh = dict(seen), []
    old = before.files if before else {}
    trusted = before.at - RACY_NS if before else 0
    for path, entry in seen.items():
        if entry.kind == FOLDER:
            continue
        last = old.get(path)
        if last is not None and entry.inode not in mapped and last._replace(blob="") == entry and entry.ctime < trusted:
            known[path] = last
        else:
            fresh.append(path)
    return known, fresh


def mark_unsettled(files: Files, mapped: Container[int]) -> dict[str, ManifestEntry]:
    """Return *files*, marked so that those in *mapped* are read again the next time, whatever their times are then."""
    return {
        path: entry._replace(ctime=0) if entry.kind == FILE and entry.inode in mapped else entry
        for path, entry in files.items()
    }


def content(files: Files) -> dict[str, tuple[str, int, str]]:
    """Return what a git history shows of *files*: paths, kinds, modes and contents; no times."""
    return {path: (entry.kind, entry.mode, entry.blob) for path, entry in files.items()}


def is_in_history(path: str) -> bool:
    """Whether git accepts *path* in a tree; it rejects `.git` under any of its spellings."""
    return not any(_is_gits_own(part) for part in path.split("/"))


def _is_gits_own(part: str) -> bool:
    return part.lower().rstrip(". ").partition(":")[0] in (".git", "git~1") or any(
        ord(letter) in _IGNORED for letter in part
    )


_IGNORED: Final = frozenset({*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF})
"""Characters that one file system ignores when it compares names, so that `.g\u200cit` is `.git` there."""


def encode(manifest: Manifest) -> bytes:
    """Serialize *manifest* for `decode`."""
    return json.dumps({"at": manifest.at, "files": manifest.files}, separators=(",", ":")).encode()


def decode(text: bytes) -> Manifest:
    """Parse a manifest. Raises `ValueError`, `TypeError` or `KeyError` if *text* is no manifest."""
    decoded = json.loads(text)
    files = {path: ManifestEntry(*entry) for path, entry in decoded["files"].items()}
    if not all(is_proper(path) and entry.kind in KINDS for path, entry in files.items()):
        raise ValueError("a path that leads elsewhere")
    return Manifest(decoded["at"], files)


def is_proper(path: str) -> bool:
    return "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


def parents_first(files: Files) -> Iterable[tuple[str, ManifestEntry]]:
    """Return *files* sorted so that a folder comes before its content."""
    return sorted(files.items())
