"""This machine's QEMU: its version, and whether it can run kasmon's machines.

A KVM device that opens is no proof: a kernel that is a guest itself may offer one with which no machine boots. So a
trial machine is booted; the result is stored with the identity of the machine, and is not repeated until that changes.
"""

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import private_folder, read_json, write_private
from kasmon.sandbox.base import UnavailableReason
from kasmon.sandbox.microvm import debian_packages
from kasmon.sandbox.microvm.qemu import MACHINE, OLDEST
from kasmon.sandbox.shared.host_folders import may_use
from kasmon.sandbox.shared.install_command import find_install_command

LEAST_S: Final = 3.0
"""The least time that a start with KVM may take before it counts as slower."""


class KvmTrial(msgspec.Struct, frozen=True, kw_only=True):
    on: str
    """The identity of the machine (`identity`)."""
    at: float
    emulated_ms: float
    carried_ms: float | None = None
    """None if it did not boot."""
    why: str = ""
    """Why KVM is not used; empty if it is."""

    @property
    def uses_kvm(self) -> bool:
        return not self.why

    @property
    def sentence(self) -> str:
        """The result as text for the user."""
        emulated = f"a start takes {self.emulated_ms:.0f} ms emulated"
        if self.uses_kvm and self.carried_ms is not None:
            return f"with KVM: {emulated}, {self.carried_ms:.0f} ms with it"
        return f"emulated, without KVM: {self.why} ({emulated})"


def identity(program: str, image: str) -> str:
    """Return an id of this machine, its kernel and QEMU, for a machine booted from *image*."""
    facts = [platform.release(), platform.version(), platform.machine(), read_version(program), image]
    for path, keys in (("/etc/machine-id", None), ("/proc/cpuinfo", ("model name", "flags", "microcode"))):
        try:
            lines = Path(path).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        seen = {line.partition(":")[0].strip(): line for line in lines}
        facts += [line for name, line in seen.items() if keys is None or name in keys]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def load_trial(path: Path, on: str) -> KvmTrial | None:
    """Return the result for the machine *on* that is stored at *path*; None if there is none."""
    trial = read_json(path, KvmTrial, None)
    return trial if trial and trial.on == on else None


def store_trial(path: Path, trial: KvmTrial) -> KvmTrial:
    """Store *trial* at *path*. Raises `OSError` if that fails."""
    private_folder(path.parent)
    write_private(path, msgspec.json.encode(trial))
    return trial


def run_trial(on: str, started: Callable[[str, float | None], float], emulated_ms: float | None = None) -> KvmTrial:
    """Start a machine with KVM and one without; return the result.

    Args:
        on: the identity of the machine (`identity`).
        started: starts a machine with an accelerator and a time limit in seconds (None: the default), and ends it;
            returns the milliseconds it took. Raises SandboxError if it did not start.
        emulated_ms: the time of a start without KVM, if known.

    Raises:
        SandboxError: if none starts with emulation either.
    """
    if emulated_ms is None:
        emulated_ms = started(EMULATED, None)
    limit_s = max(LEAST_S, emulated_ms / 1000)
    try:
        carried_ms = started(ACCELERATED, limit_s)
    except SandboxError as error:
        why = f"a machine with it did not boot within {limit_s:.1f} s, and was ended ({error.message.rstrip('.')})"
        return KvmTrial(on=on, at=time.time(), emulated_ms=emulated_ms, why=why)
    why = "" if carried_ms < emulated_ms else f"it is no faster here: a start takes {carried_ms:.0f} ms with it"
    return KvmTrial(on=on, at=time.time(), emulated_ms=emulated_ms, carried_ms=carried_ms, why=why)


def find_obstacle(owner: tuple[int, int]) -> str:
    """Return why KVM cannot be tried for machines that *owner* runs; empty if it can."""
    if not KVM.exists():
        return f"this machine has no {KVM}"
    if not may_use(KVM, owner, writable=True):
        who = f"user {owner[0]}, as whom QEMU runs," if os.geteuid() == 0 else "this user"
        return f"{who} may not open {KVM}"
    return ""


PROGRAM: Final = "qemu-system-x86_64"
IMAGES: Final = "qemu-img"
KVM: Final = Path("/dev/kvm")
SETPRIV: Final = Path("/usr/bin/setpriv")
EMULATED: Final = "tcg,tb-size=128"
ACCELERATED: Final = "kvm"
RUN_S: Final = 60.0
FORMAT_S: Final = 300.0


def lacking(program: str = PROGRAM) -> UnavailableReason | None:
    """Return what is missing for a machine, as far as known without trying."""
    if shutil.which(program) is None:
        return UnavailableReason("QEMU is not installed", f"Install it: {find_install_command('qemu-system-x86')}.")
    if shutil.which(IMAGES) is None:
        return UnavailableReason("qemu-img is not installed", f"Install it: {find_install_command('qemu-utils')}.")
    if not SETPRIV.exists():
        return UnavailableReason("setpriv is not installed", f"Install it: {find_install_command('util-linux')}.")
    version = read_version(program)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        return UnavailableReason(
            f"QEMU is of version {version or 'unknown'}", f"It must support the machine type {MACHINE} (7.2 or later)."
        )
    return None


@functools.cache
def read_version(program: str = PROGRAM) -> str:
    """Return QEMU's version with its package's; empty if it does not print one."""
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=RUN_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"version (\S+)(?: \((.*?)\))?", output)
    return " ".join(part for part in found.groups() if part) if found else ""


def format_disk(*flags: str) -> None:
    """Create an ext4 file system, without a journal, by `mke2fs` with *flags*. Raises `SandboxError` if that fails."""
    program = debian_packages.find_program("mke2fs") or "mke2fs"
    run_tool(program, "-q", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0", *flags, limit_s=FORMAT_S)


def run_tool(*flags: str, limit_s: float = RUN_S) -> None:
    """Run a program that creates or changes a disk. Raises `SandboxError` if it fails, with its own message."""
    try:
        done = subprocess.run(flags, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError("cannot create a disk", str(error)) from error
    if done.returncode:
        raise SandboxError("cannot create a disk", f"{Path(flags[0]).name}: {done.stderr.strip()[-200:]}")
