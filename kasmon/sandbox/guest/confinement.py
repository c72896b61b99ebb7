"""What the kernel in here says of who we are and what we may; who keeps the sandbox compares it with what is out."""

import os

from kasmon.sandbox.guest.request_fields import Words


def looked() -> Words:
    """The kernel's name, its boot, the network devices, our user and our capabilities; empty what it does not say."""
    told = os.uname()
    status = dict(line.partition(":")[::2] for line in _read("/proc/self/status").splitlines())
    devices = [line.partition(":")[0].strip() for line in _read("/proc/net/dev").splitlines() if ":" in line]
    return {
        "kernel": f"{told.release} {told.version}",
        "boot": _read("/proc/sys/kernel/random/boot_id").strip(),
        "devices": devices,
        "user": os.getuid(),
        "capabilities": status.get("CapEff", "").strip(),
    }


def _read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - pathlib is a third of the start
            return file.read()
    except OSError:
        return ""
