"""Proof of confinement: compare what the kernel reports of a process with the expected confinement.

The same /proc files are read by a small probe inside a jail of its own, or by kasmon from outside for the confined
process. Programs in the sandbox cannot influence the second.
"""

import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.base import ConfinementProof
from kasmon.sandbox.shared.processes import LOOK_S, PROC, is_inside, name_inside, tree
from kasmon.system.linux import read_environ

IN_MEMORY: Final = ("/tmp", "/run", "/dev/shm")
"""Folders of a jail that are on no disk."""
TRIES: Final = 5


class AllNumbers(Container[int]):
    """A container of all inodes, for when the mapped files cannot be determined."""

    def __contains__(self, inode: object) -> bool:
        return True


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
                return AllNumbers()
            except OSError:
                continue
            found.update(inode for line in maps.splitlines() if (inode := _parse_written_inode(line)))
        if tree(init) == before:
            return found
    return AllNumbers()


def _parse_written_inode(line: bytes) -> int:
    """Return the inode of the file that the mapping *line* can write to; 0 if none."""
    _, modes, _, _, inode, *_ = line.split(None, 5)
    return int(inode) if modes[1:2] == b"w" and modes[3:4] == b"s" else 0


SETTLE_S: Final = 0.5
"""Time that a starting jail has until its confinement must be complete."""
NAMESPACES: Final = ("user", "ipc", "pid", "net", "uts", "mnt")
WRITABLE: Final = ("/proc", "/tmp", "/run", "/dev/shm", "/dev/pts", "/home/sandbox")
"""Mounts that are writable in every jail, besides the devices below `/dev/`."""
PROBE: Final = """
import json, os
def read(name):
    with open("/proc/self/" + name) as file:
        return file.read()
print(json.dumps({
    "status": read("status"), "mountinfo": read("mountinfo"), "devices": read("net/dev"), "uid": os.getuid(),
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in %r},
}))
"""
"""A program for `python3 -I -S -c` that prints a `ProcessConfinement` as JSON."""


class ProcessConfinement(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel reports of one process."""

    status: str
    mountinfo: str
    devices: str
    uid: int
    namespaces: dict[str, str]


class ExpectedConfinement(msgspec.Struct, frozen=True, kw_only=True):
    """The confinement that a process must have."""

    writable: Sequence[str]
    """Mounts that may be writable besides `WRITABLE`."""
    user: int
    """The user id, as seen from where the process is read (inside or outside)."""


def probe_command() -> list[str]:
    """Return the command that runs `PROBE` inside; `parse_report` parses its output."""
    return ["/usr/bin/python3", "-I", "-S", "-c", PROBE % (NAMESPACES,)]


def parse_report(text: str) -> ProcessConfinement:
    """Parse the output of the probe. Raises `SandboxError` if the text is not valid probe output."""
    try:
        return msgspec.json.decode(text.strip().encode(), type=ProcessConfinement)
    except msgspec.MsgspecError as error:
        raise SandboxError("confinement is not verified", "the probe in the sandbox gave no valid answer") from error


def read_confinement(pid: int) -> ProcessConfinement:
    """Return what the kernel reports of process *pid*, read from outside. Raises `OSError` if it has ended."""
    process_folder = Path(f"/proc/{pid}")
    status = (process_folder / "status").read_text()
    return ProcessConfinement(
        status=status,
        mountinfo=(process_folder / "mountinfo").read_text(),
        devices=(process_folder / "net/dev").read_text(),
        uid=int(_fields(status).get("Uid", "0").split()[0]),
        namespaces={name: str((process_folder / "ns" / name).readlink()) for name in NAMESPACES},
    )


def read_own_namespaces() -> dict[str, str]:
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES}


def verify(pid: int, expected: ExpectedConfinement) -> ConfinementProof:
    """Compare the jail of *pid* with *expected* until it matches, for `SETTLE_S`. May raise `SandboxError`."""
    until = time.monotonic() + SETTLE_S
    while True:
        try:
            report = read_confinement(next((each for each in tree(pid) if is_inside(each)), pid))
        except OSError as error:
            raise SandboxError(f"process {pid} cannot be inspected", error.strerror or "it has ended") from error
        shown = compare(report, expected, read_own_namespaces())
        if shown.ok or time.monotonic() > until:
            return shown
        time.sleep(LOOK_S)  # a starting jail applies the filter last, before it runs anything


def compare(report: ProcessConfinement, expected: ExpectedConfinement, outside: dict[str, str]) -> ConfinementProof:
    """Compare what the kernel *report* with *expected*, and check that no namespace is in *outside*. Pure."""
    fields = _fields(report.status)
    faults = [
        f"it shares its {name} namespace with this machine"
        for name in NAMESPACES
        if report.namespaces.get(name, "") in ("", outside[name])
    ]
    if report.uid != expected.user or report.uid == 0:
        faults.append(f"it runs as user {report.uid}, not as {expected.user}")
    faults += [
        f"it has capabilities ({name} {fields.get(name, 'unknown')})"
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")
        if int(fields.get(name, "1"), 16)
    ]
    if fields.get("NoNewPrivs") != "1":
        faults.append("programs of root's that it starts could become root")
    if fields.get("Seccomp") != "2":
        faults.append("no seccomp filter is active")
    devices = {line.partition(":")[0].strip() for line in report.devices.splitlines() if ":" in line}
    if devices - {"lo"}:
        faults.append(f"it has network devices: {', '.join(sorted(devices - {'lo'}))}")
    faults += _find_mount_faults(report.mountinfo, expected.writable)
    return ConfinementProof(ok=not faults, mismatches=tuple(faults))


def _fields(status: str) -> dict[str, str]:
    return {name: value.strip() for line in status.splitlines() for name, _, value in [line.partition(":")]}


def _find_mount_faults(mountinfo: str, writable: Sequence[str]) -> list[str]:
    """Return the faults of the mounts: writable ones that should not be, and kinds that should not be mounted."""
    allowed = {*WRITABLE, *writable}
    faults = []
    for line in mountinfo.splitlines():
        front, _, back = line.partition(" - ")
        root, target, options = (_unescape(field) for field in front.split()[3:6])
        kind = back.split()[0]
        if kind in ("sysfs", "cgroup", "cgroup2", "debugfs", "securityfs"):
            faults.append(f"it sees {kind} at {target}")
        if "rw" in options.split(",") and target not in allowed and not target.startswith("/dev/"):
            faults.append(f"it may write to {target} ({kind}, {root})")
    return faults


def _unescape(field: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, letter)
    return field
