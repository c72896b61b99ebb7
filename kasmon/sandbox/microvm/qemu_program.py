"""This machine's QEMU: its version, and whether it can run kasmon's machines."""

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kasmon.errors import SandboxError
from kasmon.sandbox.base import UnavailableReason
from kasmon.sandbox.jail.probe import find_install_command
from kasmon.sandbox.microvm.qemu import MACHINE, OLDEST
from kasmon.sandbox.shared.host_folders import may_use

PROGRAM: Final = "qemu-system-x86_64"
IMAGES: Final = "qemu-img"
KVM: Final = Path("/dev/kvm")
SETPRIV: Final = Path("/usr/bin/setpriv")
EMULATED: Final = "tcg,tb-size=128"
CARRIED: Final = "kvm"
RUN_S: Final = 60.0


def lacking(program: str = PROGRAM) -> UnavailableReason | None:
    """Return what is missing for a machine, as far as known without trying."""
    if shutil.which(program) is None:
        return UnavailableReason("QEMU is not installed", f"Install it: {find_install_command('qemu-system-x86')}.")
    if shutil.which(IMAGES) is None:
        return UnavailableReason("qemu-img is not installed", f"Install it: {find_install_command('qemu-utils')}.")
    if not SETPRIV.exists():
        return UnavailableReason("setpriv is not installed", f"Install it: {find_install_command('util-linux')}.")
    told = read_version(program)
    if tuple(int(part) for part in re.findall(r"\d+", told)[:2]) < OLDEST:
        return UnavailableReason(
            f"QEMU is of version {told or 'unknown'}", f"It must support the machine type {MACHINE} (7.2 or later)."
        )
    return None


@functools.cache
def read_version(program: str = PROGRAM) -> str:
    """Return QEMU's version with its package's; empty if it does not print one."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=RUN_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"version (\S+)(?: \((.*?)\))?", said)
    return " ".join(part for part in found.groups() if part) if found else ""


def can_use_kvm(owner: tuple[int, int]) -> bool:
    """Whether *owner* can open KVM; then it may be tried, and only a timed start proves it."""
    return KVM.exists() and may_use(KVM, owner, writable=True)


def run_tool(*words: str) -> None:
    """Run a program that creates or changes a disk.

    Raises:
        SandboxError: if it fails, with its own message.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError("cannot create a disk", str(error)) from error
    if done.returncode:
        raise SandboxError("cannot create a disk", f"{Path(words[0]).name}: {done.stderr.strip()[-200:]}")
