"""What of a jail is seen from outside: its files in memory, and its processes' environments and mapped files."""

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from kasmon.sandbox.shared.processes import PROC, name_inside, tree

IN_MEMORY: Final = ("/tmp", "/run", "/dev/shm")
"""Folders of a jail that are on no disk."""
TRIES: Final = 5


class Everything(Container[int]):
    """Where it cannot be told which files they are."""

    def __contains__(self, inode: object) -> bool:
        return True


def folders(init: int) -> dict[str, Path]:
    """Each folder in memory of the jail whose first process is *init*: where it is inside, and for us.

    What is in there may be a link that leads anywhere: nobody is to follow one.
    """
    return {place: PROC / f"{init}/root{place}" for place in IN_MEMORY}


def environments(init: int) -> Iterator[tuple[str, bytes]]:
    """Yield each process of the jail, in words, with what it was started with; not one that cannot be looked at."""
    for pid in tree(init):
        try:
            environ = (PROC / f"{pid}/environ").read_bytes()
            name = (PROC / f"{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            continue
        yield f"process {name_inside(pid) or pid} ({name})", environ


def mapped(init: int) -> Container[int]:
    """The inodes of files that a process of the jail can write to as to its memory, as they are now.

    Such a write may leave a file's times as they are, as long as an earlier one is not on disk.
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
            found.update(inode for line in maps.splitlines() if (inode := _written(line)))
        if tree(init) == before:
            return found
    return Everything()


def _written(line: bytes) -> int:
    """The inode of the file that the mapping *line* writes to; 0 where it writes to none."""
    _, modes, _, _, inode, *_ = line.split(None, 5)
    return int(inode) if modes[1:2] == b"w" and modes[3:4] == b"s" else 0
