"""The processes of this machine at one moment: who descends from a pane's program, and who has its terminal. Blocks."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SHELLS: Final = frozenset({"ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "sh", "tcsh", "zsh"})


class Entry(NamedTuple):
    """One process."""

    parent: int
    group: int
    foreground: int
    """The process group that its terminal listens to; -1 without a terminal."""
    name: str


class Table:
    """All processes, by pid."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        self.entries = entries
        self._children: dict[int, list[int]] = {}
        for pid, entry in entries.items():
            self._children.setdefault(entry.parent, []).append(pid)

    def below(self, pid: int) -> list[int]:
        """All that descend from *pid*, the nearest first; each once, also where parents were read as a ring."""
        found, known = [pid], {pid}
        for one in found:
            children = [child for child in self._children.get(one, ()) if child not in known]
            found += children
            known.update(children)
        return found[1:]

    def is_back_at_shell(self, pid: int) -> bool | None:
        """Whether *pid* is a shell that has its terminal to itself; None where it is no shell, or not there."""
        entry = self.entries.get(pid)
        if entry is None or entry.name.lstrip("-") not in SHELLS:
            return None
        return entry.foreground == entry.group and not any(
            self.entries[one].group == entry.group for one in self.below(pid)
        )


def table() -> Table:
    """All processes now; an empty table where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return Table(dict(_from_proc() if sys.platform == "linux" else _from_ps()))
    return Table({})


def _from_proc() -> Iterator[tuple[int, Entry]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - half the cost of a path for each
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            head, _, tail = _content(f"/proc/{name}/stat").rpartition(b")")
            fields = tail.split()
            if fields[0] == b"Z":
                continue
            comm = head.partition(b"(")[2].decode("utf-8", "replace")
            yield int(name), Entry(int(fields[1]), int(fields[2]), int(fields[5]), comm)


def _content(path: str) -> bytes:
    """All of a short file of /proc; a Path takes three times as long, and there are hundreds of them."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def _from_ps() -> Iterator[tuple[int, Entry]]:
    command = ["ps", "-axo", "pid=,ppid=,pgid=,tpgid=,stat=,comm="]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout
    for line in told.splitlines():
        pid, parent, group, foreground, state, name = line.split(None, 5)
        if not state.startswith("Z"):
            yield int(pid), Entry(int(parent), int(group), int(foreground), Path(name).name)
