"""Control groups and limits of jails: a group, if the system allows it, freezes and limits all processes of a jail.

Only cgroup v2. A group is created below the nearest ancestor that kasmon may write to. Which limits it can hold depends
on its controllers.

Without a group, limits set inside apply to this jail alone. (Set outside, a limit on processes would count all that its
user runs anywhere.) Programs inside cannot raise them again.

Without a group a jail is frozen by signals. A parent is stopped before its children are listed and stopped, so no new
child is missed. Children continue before their parents, so no shell takes a child for one that the user stopped. A
process that was stopped before stays stopped.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.model.sandbox.policy import MIB, SandboxSize
from kasmon.paths import read_json, write_private
from kasmon.sandbox.shared.processes import LOOK_S, children, send_signal, threads, tree
from kasmon.system.linux import fields

PRLIMIT: Final = "/usr/bin/prlimit"
FILES: Final = 4096
"""Open files per process."""


AGENT_BYTES: Final = 16384 * MIB
"""The least memory that an agent's process may allocate: some reserve far more than they use, or fail to start."""


def build_limit_prefix(size: SandboxSize, *, data_bytes: int = 0) -> list[str]:
    """Return the prefix of a command inside that limits it and its descendants to *size*.

    *data_bytes* is what each process may allocate; 0 if a control group limits the memory of all of them together.
    """
    held = {"core": 0, "nproc": size.processes, "fsize": size.disk_bytes, "nofile": FILES, "memlock": 65536}
    if data_bytes:
        held["data"] = data_bytes
    return [PRLIMIT, *(f"--{name}={value}:{value}" for name, value in held.items()), "--"]


PERIOD_US: Final = 100_000
FREEZE_S: Final = 2.0
END_S: Final = 2.0
GROUP_LOOK_S: Final = 0.001
HOLDING: Final = ("memory", "pids", "cpu")
"""The controllers that hold a jail's limits."""


class CgroupLimits(NamedTuple):
    """Which of a jail's limits its group holds."""

    memory: bool
    processes: bool
    cpus: bool


class Cgroup:
    """The control group of one jail at *folder*, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, size: SandboxSize) -> CgroupLimits:
        """Create the group with those limits of *size* that it can hold. Raises `OSError` if it cannot be created."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        self._try_write("cgroup.freeze", "0")  # an existing group may be frozen
        return CgroupLimits(
            memory=self._try_write("memory.max", str(size.memory_bytes)),
            processes=self._try_write("pids.max", str(size.processes)),
            cpus=self._try_write("cpu.max", f"{int(size.cpus * PERIOD_US)} {PERIOD_US}"),
        )

    def add_process(self, pid: int) -> None:
        """Move the process *pid* into the group, with its future children. Raises `OSError` if that is not allowed."""
        _write(self.folder / "cgroup.procs", str(pid))

    @property
    def is_there(self) -> bool:
        """Whether the group exists and can freeze."""
        return (self.folder / "cgroup.freeze").exists()

    def freeze(self, *, frozen: bool) -> bool:
        """Stop or continue all processes in the group; return whether that was done within `FREEZE_S`."""
        try:
            _write(self.folder / "cgroup.freeze", "1" if frozen else "0")
            until = time.monotonic() + FREEZE_S
            wanted = f"frozen {int(frozen)}"
            while wanted not in (self.folder / "cgroup.events").read_text().splitlines():
                if time.monotonic() > until:
                    return False
                time.sleep(GROUP_LOOK_S)
        except OSError:
            return False
        return True

    def number(self, name: str) -> int | None:
        """Return the number in the group's file *name*; None if there is none."""
        try:
            return int((self.folder / name).read_text())
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Kill all processes in the group and remove it, within `END_S`. Idempotent."""
        self._try_write("cgroup.kill", "1")
        until = time.monotonic() + END_S
        while self.folder.exists() and time.monotonic() < until:
            with contextlib.suppress(OSError):  # while a process is still ending
                self.folder.rmdir()
                break
            time.sleep(GROUP_LOOK_S)

    def _try_write(self, name: str, value: str) -> bool:
        try:
            _write(self.folder / name, value)
        except OSError:
            return False
        return True


def find_group(name: str, proc: Path = Path("/proc/self")) -> Cgroup | None:
    """Return the group for the jail *name*, which may not exist yet; None if kasmon may not create groups."""
    try:
        lines = (proc / "mountinfo").read_text().splitlines()
        own = next(line[3:] for line in (proc / "cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    root = next((Path(line.split(" ")[4]) for line in lines if " - cgroup2 " in line), None)
    if root is None:
        return None
    group = root / own.lstrip("/")
    for folder in (group, *group.parents):
        if os.access(folder / "cgroup.procs", os.W_OK) and os.access(folder, os.W_OK):
            best = folder
            # A group with processes of its own gives its children no controllers; one above it may.
            for above in folder.parents:
                if not above.is_relative_to(root) or not os.access(above / "cgroup.procs", os.W_OK):
                    break
                if len(_controllers(above)) > len(_controllers(best)) and os.access(above, os.W_OK):
                    best = above
            return Cgroup(best / f"kasmon-{name}")
        if folder == root:
            break
    return None


def _controllers(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in (folder / "cgroup.subtree_control").read_text().split() if name in HOLDING]
    return []


def _write(file: Path, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


STOP_S: Final = 2.0
STILL: Final = frozenset({b"T", b"t", b"Z", b"X"})
"""The states of processes that do not run."""


def freeze_jail(init: int, group: Cgroup | None, note: Path) -> bool:
    """Stop the jail whose first process is *init*; return whether that worked. If not, all processes continue.

    Args:
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
    continue_tree(init, read_json(note, list[int], ()))
    note.unlink(missing_ok=True)


def is_stopped(pid: int) -> bool:
    """Whether every thread of *pid* is stopped; also true of a process that has ended."""
    return all((stat := fields(pid, task)) is None or stat[0] in STILL for task in threads(pid))


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
            stat = fields(pid)
            if stat is not None and stat[0] == b"T":
                before.append(pid)
            if pid == init or (stat is not None and int(stat[1]) in known):
                send_signal(pid, signal.SIGSTOP)
        known.update(dict.fromkeys(fresh))
        while not all(is_stopped(pid) for pid in fresh):  # before listing children: a running parent could start more
            if time.monotonic() > until:
                continue_processes(known, before)
                return None
            time.sleep(LOOK_S / 4)
        fresh = list(dict.fromkeys(child for pid in known for child in children(pid) if child not in known))
    return list(known), before


def continue_processes(processes: Collection[int], but: Collection[int] = ()) -> None:
    """Continue *processes* (each parent before its children), the last first; those in *but* stay stopped."""
    for pid in reversed(list(processes)):
        if pid not in but:
            send_signal(pid, signal.SIGCONT)


def continue_tree(init: int, but: Collection[int] = ()) -> None:
    """Continue the process *init* and all its descendants; those in *but* stay stopped."""
    continue_processes(tree(init), but)
