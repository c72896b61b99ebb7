"""All processes of a jail stopped, and let go on: by its group where it has one, else by signals.

By signals: a parent stands still before its children are looked for and stopped, so nobody is born behind our back, and
children go on before their parents: so no shell takes a child for one that a person stopped. Who was stopped already
stays so.
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
from kasmon.sandbox.shared.processes import LOOK_S, children, send, threads

STOP_S: Final = 2.0
STILL: Final = frozenset({b"T", b"t", b"Z", b"X"})
"""The states of those that run no more."""


def sleep(init: int, group: Cgroup | None, note: Path) -> bool:
    """Stop the jail whose first process is *init*; whether that was done. If not, all go on.

    Args:
        init: its first process.
        group: its control group; None, or one that is not there, where it has none.
        note: the file where it is noted who had been stopped before, if anybody had.

    Raises:
        OSError: if that cannot be noted; all go on then.
    """
    if group is not None and group.is_there:
        if group.freeze(frozen=True):
            return True
        group.freeze(frozen=False)
    done = stop(init)
    if done is None:
        return False
    everybody, before = done
    if len(before) < len(everybody):  # else it slept already, and who was stopped before that is noted
        try:
            _note(note, before)
        except OSError:
            go_on(everybody, before)
            raise
    return True


def _note(note: Path, before: Collection[int]) -> None:
    if before:
        write_private(note, msgspec.json.encode(before))
    else:
        note.unlink(missing_ok=True)


def wake(init: int, group: Cgroup | None, note: Path) -> None:
    """Let a jail that `sleep` stopped go on, but for those of it that had been stopped before."""
    if group is not None and group.is_there:
        group.freeze(frozen=False)
    try:
        before = msgspec.json.decode(note.read_bytes(), type=list[int])
    except (OSError, msgspec.MsgspecError):
        before = []
    go_on_all(init, before)
    note.unlink(missing_ok=True)


def stopped(pid: int) -> bool:
    """Whether every thread of *pid* stands still; true of one that is gone."""
    return all((told := fields(pid, task)) is None or told[0] in STILL for task in threads(pid))


def stop(init: int, limit_s: float = STOP_S) -> tuple[list[int], list[int]] | None:
    """Stop the process *init* and all that descends from it.

    Returns:
        All of them, each parent before its children, and those that stood still before; None where one did not stop
        within *limit_s*: all go on then.
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
                send(pid, signal.SIGSTOP)
        known.update(dict.fromkeys(fresh))
        while not all(stopped(pid) for pid in fresh):  # before their children: they would be seen to stop
            if time.monotonic() > until:
                go_on(known, before)
                return None
            time.sleep(LOOK_S / 4)
        fresh = list(dict.fromkeys(child for pid in known for child in children(pid) if child not in known))
    return list(known), before


def _reached(init: int) -> list[int]:
    """*init* and all that descends from it, as far as one can see before the parents stand still."""
    found = [init]
    for pid in found:
        found += (child for child in children(pid) if child not in found)
    return found


def go_on(processes: Collection[int], but: Collection[int] = ()) -> None:
    """Let *processes* (each parent before its children) go on, the last first; those of *but* stay stopped."""
    for pid in reversed(list(processes)):
        if pid not in but:
            send(pid, signal.SIGCONT)


def go_on_all(init: int, but: Collection[int] = ()) -> None:
    """Let the process *init* and all that descends from it go on; those of *but* stay stopped."""
    go_on(_reached(init), but)
