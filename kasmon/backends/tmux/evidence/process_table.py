"""The processes of this machine at one moment: descendants of a pane's program, and terminal foregrounds. Blocks."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kasmon.model.agent_program import SHELLS


class ProcessEntry(NamedTuple):
    parent: int
    group: int
    foreground: int
    """The foreground process group of its terminal; -1 without a terminal."""
    name: str
    is_stopped: bool = False
    """Whether a stop signal stopped it, as Ctrl-Z does."""


class ProcessTable:
    """All processes, by pid."""

    def __init__(self, entries: Mapping[int, ProcessEntry]) -> None:
        self.entries = entries
        self._children: dict[int, list[int]] = {}
        for pid, entry in entries.items():
            self._children.setdefault(entry.parent, []).append(pid)

    def below(self, pid: int) -> list[int]:
        """Return all descendants of *pid*, the nearest first; each once, even if parents were read as a cycle."""
        found, known = [pid], {pid}
        for one in found:
            children = [child for child in self._children.get(one, ()) if child not in known]
            found += children
            known.update(children)
        return found[1:]

    def is_stopped(self, pids: Iterable[int]) -> bool:
        return any(pid in self.entries and self.entries[pid].is_stopped for pid in pids)

    def is_stopped_in_front(self, pid: int) -> bool:
        """Whether the foreground job of *pid*'s terminal is stopped, also if a shell without job control waits for it.

        A shell with job control takes the terminal back from what Ctrl-Z stopped.
        """
        there = self.entries.get(pid)
        front = there.foreground if there is not None else -1
        at = [front if front in self.entries else pid]
        while len(at) == 1 and (entry := self.entries.get(at[0])) is not None and entry.group == front:
            if entry.is_stopped or entry.name.lstrip("-") not in SHELLS:
                return entry.is_stopped
            at = [one for one in self._children.get(at[0], ()) if self.entries[one].group == front]
        return False

    def is_back_at_shell(self, pid: int) -> bool | None:
        """Whether *pid* is a shell alone in its terminal's foreground; None if it is no shell, or does not exist."""
        entry = self.entries.get(pid)
        if entry is None or entry.name.lstrip("-") not in SHELLS:
            return None
        return entry.foreground == entry.group and not any(
            self.entries[one].group == entry.group for one in self.below(pid)
        )


def foreground_of(pid: int) -> int:
    """Return the foreground process group of *pid*'s terminal; -1 without one, or if *pid* does not exist."""
    entry = table().entries.get(pid)
    return -1 if entry is None else entry.foreground


def table() -> ProcessTable:
    """Return all processes now; an empty table if the system call fails."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return ProcessTable(dict(_from_proc() if sys.platform == "linux" else _from_ps()))
    return ProcessTable({})


def _from_proc() -> Iterator[tuple[int, ProcessEntry]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - half the cost of a path for each
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            head, _, tail = _content(f"/proc/{name}/stat").rpartition(b")")
            fields = tail.split()
            if fields[0] == b"Z":
                continue
            comm = head.partition(b"(")[2].decode("utf-8", "replace")
            yield int(name), ProcessEntry(int(fields[1]), int(fields[2]), int(fields[5]), comm, fields[0] == b"T")


def _content(path: str) -> bytes:
    """Return a short file of /proc whole; a Path takes three times as long, and there are hundreds of files."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def _from_ps() -> Iterator[tuple[int, ProcessEntry]]:
    command = ["ps", "-axo", "pid=,ppid=,pgid=,tpgid=,stat=,comm="]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout
    for line in output.splitlines():
        pid, parent, group, foreground, state, name = line.split(None, 5)
        if not state.startswith("Z"):
            is_stopped = state.startswith("T")
            yield int(pid), ProcessEntry(int(parent), int(group), int(foreground), Path(name).name, is_stopped)
