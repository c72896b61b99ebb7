"""Proof of a sandbox with its own kernel: compare what the guest reports with this machine.

The report is the guest's own, requested when the sandbox is created or its agent starts: code that ran inside could
forge it. For a jail, this machine's kernel is asked from outside (`jail/proof`); for another kernel that is impossible.
"""

import contextlib
import os

from kasmon.boot_id import boot
from kasmon.errors import KasmonError
from kasmon.model.sandbox.policy import SandboxRuntime
from kasmon.sandbox.guest_client.channel import GuestChannel
from kasmon.sandbox.guest_client.protocol import ConfinementReport


def ours() -> ConfinementReport:
    """Return what a process of this machine would report."""
    uname = os.uname()
    return ConfinementReport(kernel=f"{uname.release} {uname.version}", boot=boot(), user=os.getuid())


def compare(report: ConfinementReport, host: ConfinementReport) -> tuple[str, ...]:
    """Return the faults in the guest's report *report*, compared with this machine's *host*, for the user. Pure."""
    faults = []
    is_same_boot = bool(report.boot) and report.boot == host.boot
    if is_same_boot or (report.kernel == host.kernel and not (report.boot and host.boot)):
        faults.append("it runs on this machine's own kernel")
    if report.user == 0:
        faults.append("it runs as root in the sandbox")
    if report.capabilities.strip("0"):
        faults.append(f"it has capabilities ({report.capabilities})")
    if devices := set(report.devices) - {"lo"}:
        faults.append(f"it has network devices: {', '.join(sorted(devices))}")
    return tuple(faults)


def seen(runtime: SandboxRuntime) -> tuple[bool, tuple[str, ...]] | None:
    """Return whether it is as expected, and the faults; None if the guest cannot report it. Blocks."""
    try:
        with contextlib.closing(GuestChannel(runtime.socket)) as channel:
            report = channel.report_confinement()
    except KasmonError as error:
        return False, (f"it cannot be inspected: {error.message.rstrip('.')}",)
    if report is None:
        return None
    faults = compare(report, ours())
    return not faults, faults
