"""An agent that outlived its host: ended before another one takes up the same conversation.

Only a process that is the one in the log, by id, start time and boot, is ever signalled.
"""

import contextlib
import os
import signal
import time
from typing import Final

from kasmon.process import is_running

GRACE_S: Final = 3.0
"""How long it may take to end by itself, in seconds."""


def end_orphan(pid: int | None, started: float | None, of_boot: str = "") -> bool:
    """End the process *pid* that started at *started* in boot *of_boot*, if it still runs; whether it is gone.

    Blocks for 2 * GRACE_S at most.
    """
    if pid is None or started is None or pid <= 1:
        return True
    handle = _handle(pid)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_S
            if is_running(pid, started, of_boot):
                _send(handle, pid, number)
            while is_running(pid, started, of_boot) and time.monotonic() < deadline:
                time.sleep(0.02)
        return not is_running(pid, started, of_boot)
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """A handle of the process as it is now: its id could come to mean another. None where the system has none."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def _send(handle: int | None, pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
