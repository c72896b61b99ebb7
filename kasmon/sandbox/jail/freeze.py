"""Stop and continue all processes of a jail: by its control group if it has one, else by signals.

By signals, a parent is stopped before its children are listed and stopped, so no new child is missed. Children continue
before their parents, so no shell takes a child for one that the user stopped. A process that was stopped before stays
stopped.
"""

import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from kasmon.paths import write_private
from kasmon.process_identity import fields
from kasmon.sandbox.jail.cgroup import Cgroup
from kasmon.sandbox.shared.processes import LOOK_S, children, send_signal, threads

STOP_S: Final = 2.0
STILL: Final = frozenset({b"T", b"t", b"Z", b"X"})
"""The states of processes that do not run."""


def freeze_jail(init: int, group: Cgroup | None, note: Path) -> bool:
    """Stop the jail whose first process is *init*; return whether that worked. If not, all processes continue.

    Args:
        init: its first process.
        group: its control group; None, or one that does not exist, if the jail has none.
        note: the file that lists the processes that were stopped before, if any.

    Raises:
        OSError: if *note* cannot be written; all processes continue.
    """
    if group is not None and group.is_there:
        if group.freeze(frozen=True):
            return True
        group.freeze(frozen=False)
    done = stop_tree(init)
    if done is None:
        return False
    everybody, before = done
    if len(before) < len(everybody):  # else the jail was stopped already, and *note* exists
        try:
            _write_note(note, before)
        except OSError:
            continue_processes(everybody, before)
            raise
    return True


def _write_note(note: Path, before: Collection[int]) -> None:
    if before:
        write_private(note, msgspec.json.encode(before))
    else:
        note.unlink(missing_ok=True)


def unfreeze_jail(init: int, group: Cgroup | None, note: Path) -> None:
    """Continue a jail that `freeze_jail` stopped, except for the processes that were stopped before."""
    if group is not None and group.is_there:
        group.freeze(frozen=False)
    try:
        before = msgspec.json.decode(note.read_bytes(), type=list[int])
    except (OSError, msgspec.MsgspecError):
        before = []
    continue_tree(init, before)
    note.unlink(missing_ok=True)


def is_stopped(pid: int) -> bool:
    """Whether every thread of *pid* is stopped; also true of a process that has ended."""
    return all((told := fields(pid, task)) is None or told[0] in STILL for task in threads(pid))


def stop_tree(init: int, limit_s: float = STOP_S) -> tuple[list[int], list[int]] | None:
    """Stop the process *init* and all its descendants.

    Returns:
        All of them, each parent before its children, and those that were stopped before. None if a process did not stop
        within *limit_s*; then all continue.
    """
    until = time.monotonic() + limit_s
    known: dict[int, None] = {}
    before: list[int] = []
    fresh = [init]
    while fresh:
        for pid in fresh:
            told = fields(pid)
            if told is not None and told[0] == b"T":
                before.append(pid)
            if pid == init or (told is not None and int(told[1]) in known):
                send_signal(pid, signal.SIGSTOP)
        known.update(dict.fromkeys(fresh))
        while not all(is_stopped(pid) for pid in fresh):  # before listing children: a running parent could start more
            if time.monotonic() > until:
                continue_processes(known, before)
                return None
            time.sleep(LOOK_S / 4)
        fresh = list(dict.fromkeys(child for pid in known for child in children(pid) if child not in known))
    return list(known), before


def _list_tree(init: int) -> list[int]:
    """Return *init* and all its descendants, as far as they can be listed while the parents may run."""
    found = [init]
    for pid in found:
        found += (child for child in children(pid) if child not in found)
    return found


def continue_processes(processes: Collection[int], but: Collection[int] = ()) -> None:
    """Continue *processes* (each parent before its children), the last first; those in *but* stay stopped."""
    for pid in reversed(list(processes)):
        if pid not in but:
            send_signal(pid, signal.SIGCONT)


def continue_tree(init: int, but: Collection[int] = ()) -> None:
    """Continue the process *init* and all its descendants; those in *but* stay stopped."""
    continue_processes(_list_tree(init), but)
