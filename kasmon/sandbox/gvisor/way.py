"""The relay's way into a gVisor sandbox: a process of it that has the caller as its stdin and stdout."""

import contextlib
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kasmon.sandbox.gvisor.runsc import Runsc

END_S: Final = 3.0


class Inside:
    """One sandbox."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._command = Runsc(Path(given["root"])).join(str(given["identity"]), str(given["agent"]))

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


def way(given: Mapping[str, Any]) -> Inside:
    return Inside(given)
