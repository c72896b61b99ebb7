"""A jail's contents as seen from outside: its in-memory files, and its processes' environments and mapped files."""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from kasmon.process_identity import read_environ
from kasmon.sandbox.shared.processes import PROC, name_inside, tree

IN_MEMORY: Final = ("/tmp", "/run", "/dev/shm")
"""Folders of a jail that are on no disk."""
TRIES: Final = 5


class Everything(Container[int]):
    """A container of all inodes, for when the mapped files cannot be determined."""

    def __contains__(self, inode: object) -> bool:
        return True


def find_memory_folders(init: int) -> dict[str, Path]:
    """Return the in-memory folders of the jail whose first process is *init*: path inside -> path on this machine.

    Their contents may be links to anywhere: a caller must not follow one.
    """
    return {place: PROC / f"{init}/root{place}" for place in IN_MEMORY}


def read_environments(init: int) -> Iterator[tuple[str, bytes]]:
    """Yield each process of the jail, as text, with its initial environment; skip those that cannot be read."""
    for pid in tree(init):
        try:
            environ = read_environ(pid)
            name = (PROC / f"{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            continue
        yield f"process {name_inside(pid) or pid} ({name})", environ


def find_mapped_inodes(init: int) -> Container[int]:
    """Return the inodes of files that a process of the jail can currently write to through shared memory.

    Such a write may leave a file's times unchanged while an earlier one is not yet on disk.
    """
    for _ in range(TRIES):
        before = tree(init)
        found: set[int] = set()
        for pid in before:
            try:
                maps = (PROC / f"{pid}/maps").read_bytes()
            except PermissionError:
                return Everything()
            except OSError:
                continue
            found.update(inode for line in maps.splitlines() if (inode := _parse_written_inode(line)))
        if tree(init) == before:
            return found
    return Everything()


def _parse_written_inode(line: bytes) -> int:
    """Return the inode of the file that the mapping *line* can write to; 0 if none."""
    _, modes, _, _, inode, *_ = line.split(None, 5)
    return int(inode) if modes[1:2] == b"w" and modes[3:4] == b"s" else 0
