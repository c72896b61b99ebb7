"""Whether a process is confined as it should be: what the kernel says of it, compared with what was wanted.

The kernel is asked from inside by a small probe that runs in a jail of its own, or from outside about the very process
that is confined; in both cases it is the same files of /proc. What runs inside has no say in the second.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.sandbox.shared.processes import LOOK_S, is_inside, tree

SETTLE_S: Final = 0.5
"""So long may a jail that begins not yet be as it will be."""
NAMESPACES: Final = ("user", "ipc", "pid", "net", "uts", "mnt")
WRITABLE: Final = ("/proc", "/tmp", "/run", "/dev/shm", "/dev/pts", "/home/sandbox")
"""Mounts that every jail may write to; and the devices themselves, below `/dev/`."""
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
"""A program for `python3 -I -S -c`: prints what `ProcessConfinement` holds."""


class JailProof(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is confined as it should be."""

    ok: bool
    mismatches: tuple[str, ...] = ()
    """What is not as it should be, each for people."""


class ProcessConfinement(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel says of one process."""

    status: str
    mountinfo: str
    devices: str
    uid: int
    namespaces: dict[str, str]


class ExpectedConfinement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be so."""

    writable: Sequence[str]
    """Mounts that may be written to beside `WRITABLE`."""
    user: int
    """Who it is, as seen from where it was looked at."""


def probe_command() -> list[str]:
    """What is run inside: it prints what `told` reads."""
    return ["/usr/bin/python3", "-I", "-S", "-c", PROBE % (NAMESPACES,)]


def told(text: str) -> ProcessConfinement:
    """What a probe printed.

    Raises:
        SandboxError: if that is no probe's.
    """
    try:
        return msgspec.json.decode(text.strip().encode(), type=ProcessConfinement)
    except msgspec.MsgspecError as error:
        raise SandboxError("confinement is not verified", "the probe in the sandbox gave no valid answer") from error


def seen(pid: int) -> ProcessConfinement:
    """What the kernel says of process *pid*, asked from outside.

    Raises:
        OSError: if it has ended, or may not be looked at.
    """
    here = Path(f"/proc/{pid}")
    status = (here / "status").read_text()
    return ProcessConfinement(
        status=status,
        mountinfo=(here / "mountinfo").read_text(),
        devices=(here / "net/dev").read_text(),
        uid=int(_fields(status).get("Uid", "0").split()[0]),
        namespaces={name: str((here / "ns" / name).readlink()) for name in NAMESPACES},
    )


def ours() -> dict[str, str]:
    """The namespaces that we are in."""
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES}


def settled(pid: int, wanted: ExpectedConfinement) -> JailProof:
    """Whether the jail that process *pid* stands in front of, or is in, is as *wanted*, once it had the time for it.

    Raises:
        SandboxError: if it has ended, or may not be looked at.
    """
    until = time.monotonic() + SETTLE_S
    while True:
        try:
            said = seen(next((each for each in tree(pid) if is_inside(each)), pid))
        except OSError as error:
            raise SandboxError(f"process {pid} cannot be inspected", error.strerror or "it has ended") from error
        shown = compare(said, wanted, ours())
        if shown.ok or time.monotonic() > until:
            return shown
        time.sleep(LOOK_S)  # one that begins is confined before it runs anything, and last of all by the filter


def compare(said: ProcessConfinement, wanted: ExpectedConfinement, outside: dict[str, str]) -> JailProof:
    """Whether what was *said* is as *wanted*, and no namespace is one of *outside*. Pure."""
    fields = _fields(said.status)
    faults = [
        f"it shares its {name} namespace with this machine"
        for name in NAMESPACES
        if said.namespaces.get(name, "") in ("", outside[name])
    ]
    if said.uid != wanted.user or said.uid == 0:
        faults.append(f"it runs as user {said.uid}, not as {wanted.user}")
    faults += [
        f"it has capabilities ({name} {fields.get(name, 'unknown')})"
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")
        if int(fields.get(name, "1"), 16)
    ]
    if fields.get("NoNewPrivs") != "1":
        faults.append("programs of root's that it starts could become root")
    if fields.get("Seccomp") != "2":
        faults.append("no seccomp filter is active")
    devices = {line.partition(":")[0].strip() for line in said.devices.splitlines() if ":" in line}
    if devices - {"lo"}:
        faults.append(f"it has network devices: {', '.join(sorted(devices - {'lo'}))}")
    faults += _mounts(said.mountinfo, wanted.writable)
    return JailProof(ok=not faults, mismatches=tuple(faults))


def _fields(status: str) -> dict[str, str]:
    return {name: value.strip() for line in status.splitlines() for name, _, value in [line.partition(":")]}


def _mounts(mountinfo: str, writable: Sequence[str]) -> list[str]:
    """What is wrong with the mounts: one that may be written to and should not, one that should not be there."""
    allowed = {*WRITABLE, *writable}
    faults = []
    for line in mountinfo.splitlines():
        front, _, back = line.partition(" - ")
        root, target, options = (_unescaped(word) for word in front.split()[3:6])
        kind = back.split()[0]
        if kind in ("sysfs", "cgroup", "cgroup2", "debugfs", "securityfs"):
            faults.append(f"it sees {kind} at {target}")
        if "rw" in options.split(",") and target not in allowed and not target.startswith("/dev/"):
            faults.append(f"it may write to {target} ({kind}, {root})")
    return faults


def _unescaped(word: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, letter)
    return word
