"""KVM trial: KVM is only used if a start with it was timed on this machine and was faster than emulation.

A device that opens is no proof: a kernel that is a guest itself may offer one with which no machine boots. The result
is stored with the identity of the machine, and is not repeated until that changes.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.microvm import qemu_program
from kasmon.sandbox.microvm.qemu_program import CARRIED, EMULATED

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
    def is_carried(self) -> bool:
        """Whether KVM is used."""
        return not self.why

    @property
    def sentence(self) -> str:
        """The result as text for the user."""
        emulated = f"a start takes {self.emulated_ms:.0f} ms emulated"
        if self.is_carried and self.carried_ms is not None:
            return f"with KVM: {emulated}, {self.carried_ms:.0f} ms with it"
        return f"emulated, without KVM: {self.why} ({emulated})"


def identity(program: str, image: str) -> str:
    """Return an id of this machine, its kernel and QEMU, for a machine booted from *image*."""
    told = [platform.release(), platform.version(), platform.machine(), qemu_program.read_version(program), image]
    for path, keys in (("/etc/machine-id", None), ("/proc/cpuinfo", ("model name", "flags", "microcode"))):
        try:
            lines = Path(path).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        seen = {line.partition(":")[0].strip(): line for line in lines}
        told += [line for name, line in seen.items() if keys is None or name in keys]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def load_trial(path: Path, on: str) -> KvmTrial | None:
    """Return the result for the machine *on* that is stored at *path*; None if there is none."""
    try:
        trial = msgspec.json.decode(path.read_bytes(), type=KvmTrial)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return trial if trial.on == on else None


def store_trial(path: Path, trial: KvmTrial) -> KvmTrial:
    """Store *trial* at *path*.

    Raises:
        OSError: if that fails.
    """
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
        carried_ms = started(CARRIED, limit_s)
    except SandboxError as error:
        why = f"a machine with it did not boot within {limit_s:.1f} s, and was ended ({error.message.rstrip('.')})"
        return KvmTrial(on=on, at=time.time(), emulated_ms=emulated_ms, why=why)
    why = "" if carried_ms < emulated_ms else f"it is no faster here: a start takes {carried_ms:.0f} ms with it"
    return KvmTrial(on=on, at=time.time(), emulated_ms=emulated_ms, carried_ms=carried_ms, why=why)


def find_obstacle(owner: tuple[int, int]) -> str:
    """Return why KVM cannot be tried for machines that *owner* runs; empty if it can."""
    if not qemu_program.KVM.exists():
        return f"this machine has no {qemu_program.KVM}"
    if not qemu_program.can_use_kvm(owner):
        who = f"user {owner[0]}, as whom QEMU runs," if os.geteuid() == 0 else "this user"
        return f"{who} may not open {qemu_program.KVM}"
    return ""
