"""Whether KVM is taken: only where a start with it was timed on this machine, and beat one that is emulated.

A device that opens is no proof: a kernel that is a guest itself may offer one with which a machine never comes up. What
was found is written down with what it was found on, and is not tried again before that changes.
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
"""So long a start with KVM may always take before it counts as slower."""


class KvmTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    on: str
    """The machine, as `identity` tells it."""
    at: float
    emulated_ms: float
    carried_ms: float | None = None
    """None: it did not come up."""
    why: str = ""
    """Why KVM is not taken; empty where it is."""

    @property
    def is_carried(self) -> bool:
        """Whether KVM is taken."""
        return not self.why

    @property
    def sentence(self) -> str:
        """For people."""
        emulated = f"a start takes {self.emulated_ms:.0f} ms emulated"
        if self.is_carried and self.carried_ms is not None:
            return f"with KVM: {emulated}, {self.carried_ms:.0f} ms with it"
        return f"emulated, without KVM: {self.why} ({emulated})"


def identity(program: str, image: str) -> str:
    """What tells this machine, its kernel and QEMU from others, for a machine that starts from *image*."""
    told = [platform.release(), platform.version(), platform.machine(), qemu_program.version(program), image]
    for path, keys in (("/etc/machine-id", None), ("/proc/cpuinfo", ("model name", "flags", "microcode"))):
        try:
            lines = Path(path).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        seen = {line.partition(":")[0].strip(): line for line in lines}
        told += [line for name, line in seen.items() if keys is None or name in keys]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def kept(path: Path, on: str) -> KvmTrial | None:
    """What was found on the machine *on*, as *path* has it; None where nothing was."""
    try:
        trial = msgspec.json.decode(path.read_bytes(), type=KvmTrial)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return trial if trial.on == on else None


def keep(path: Path, trial: KvmTrial) -> KvmTrial:
    """Write *trial* down at *path*.

    Raises:
        OSError: if that cannot be.
    """
    private_folder(path.parent)
    write_private(path, msgspec.json.encode(trial))
    return trial


def tried(on: str, started: Callable[[str, float | None], float], emulated_ms: float | None = None) -> KvmTrial:
    """Start a machine with KVM and one without; what was found.

    Args:
        on: the machine (`identity`).
        started: starts a machine with an accelerator, which must be there within so many seconds (None: our own
            measure), and ends it; how many milliseconds it took. Raises SandboxError where it is not there.
        emulated_ms: what a start without it takes, where that is known.

    Raises:
        SandboxError: if none starts that is emulated either.
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


def closed_to(owner: tuple[int, int]) -> str:
    """Why KVM cannot be tried at all for machines that *owner* runs; empty where it can."""
    if not qemu_program.KVM.exists():
        return f"this machine has no {qemu_program.KVM}"
    if not qemu_program.may_carry(owner):
        who = f"user {owner[0]}, as whom QEMU runs," if os.geteuid() == 0 else "this user"
        return f"{who} may not open {qemu_program.KVM}"
    return ""
