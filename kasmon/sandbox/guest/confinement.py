"""The kernel's data on this process and its rights; the host compares them with its own."""

import os

from kasmon.sandbox.guest.request_fields import JsonObject


def looked() -> JsonObject:
    """Return kernel, boot id, network devices, user and capabilities; each is empty where the kernel gives none."""
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
