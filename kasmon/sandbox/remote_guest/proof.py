"""Whether a sandbox with a kernel of its own is one: what the agent inside finds there, compared with this machine.

It is the agent's word, asked for when the sandbox is made or its agent begins: code that ran there could forge it.
Of a jail this machine's kernel is asked, from outside (`jail/proof`); of another kernel nobody can.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from kasmon.errors import KasmonError
from kasmon.model.sandbox.policy import SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.messages import ConfinementReport

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def ours() -> ConfinementReport:
    """What a process of this machine would find."""
    told = os.uname()
    boot = ""
    with contextlib.suppress(OSError):
        boot = BOOT.read_text().strip()
    return ConfinementReport(kernel=f"{told.release} {told.version}", boot=boot, user=os.getuid())


def mismatches(runtime: SandboxRuntime) -> tuple[str, ...] | None:
    """What is not as it should be in the sandbox at *runtime*; None where the agent inside cannot tell. Blocks.

    Raises:
        SandboxError: if it does not answer.
    """
    with contextlib.closing(GuestChannel(runtime.socket)) as inside:
        said = inside.look()
    return None if said is None else compare(said, ours())


def compare(said: ConfinementReport, here: ConfinementReport) -> tuple[str, ...]:
    """What of what was *said* inside is not as it should be, beside what is *here*, each for people. Pure."""
    faults = []
    is_same_boot = bool(said.boot) and said.boot == here.boot
    if is_same_boot or (said.kernel == here.kernel and not (said.boot and here.boot)):
        faults.append("it runs on this machine's own kernel")
    if said.user == 0:
        faults.append("it runs as root in the sandbox")
    if said.capabilities.strip("0"):
        faults.append(f"it has capabilities ({said.capabilities})")
    if devices := set(said.devices) - {"lo"}:
        faults.append(f"it has network devices: {', '.join(sorted(devices))}")
    return tuple(faults)


def seen(runtime: SandboxRuntime) -> tuple[bool, tuple[str, ...]] | None:
    """Whether it is as it should be, and what is not; None where nobody inside can tell. Blocks."""
    try:
        found = mismatches(runtime)
    except KasmonError as error:
        return False, (f"it cannot be inspected: {error.message.rstrip('.')}",)
    return None if found is None else (not found, found)
