"""The relay's way into a gVisor sandbox: a process of it that has the caller as its stdin and stdout."""

import contextlib
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kasmon.sandbox.far.carrier import Carrier
from kasmon.sandbox.gvisor.runsc import Runsc

END_S: Final = 3.0


class Inside:
    """One sandbox."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        runsc, identity = Runsc(Path(given["root"]), str(given["program"])), str(given["identity"])
        self._command, self._carries = runsc.join(identity, str(given["agent"])), runsc.carry(identity)
        self._gate = str(given["gate"])

    def join(self, caller: socket.socket, /) -> None:
        """Let *caller* speak with the agent inside until one of them ends."""
        child = subprocess.Popen(
            self._command, stdin=caller.fileno(), stdout=caller.fileno(), stderr=subprocess.DEVNULL
        )
        try:
            child.wait()
        finally:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def carrier(self, listening: socket.socket, /) -> Carrier:
        """What carries connections for those who come to *listening*, and to its way out."""
        return Carrier(self._carries, listening, self._gate)


def way(given: Mapping[str, Any]) -> Inside:
    """The way into the sandbox that a relay was *given*."""
    return Inside(given)
