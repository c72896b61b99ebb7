"""The processes of this machine at one moment: descendants of a pane's program, and terminal foregrounds. Blocks."""

import contextlib
from collections.abc import Iterable, Mapping

from kasmon import system
from kasmon.model.agent_program import SHELLS
from kasmon.system.base import ProcessEntry


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
        process = self.entries.get(pid)
        front = process.foreground if process is not None else -1
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
    with contextlib.suppress(OSError):
        return ProcessTable(dict(system.HERE.list_processes()))
    return ProcessTable({})
