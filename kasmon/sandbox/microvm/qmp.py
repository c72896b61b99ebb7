"""A QMP client: sends commands to a running QEMU over its socket, one at a time."""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from kasmon.errors import SandboxError

LIMIT_S: Final = 10.0
BETWEEN_S: Final = 0.002
READ_BYTES: Final = 1 << 16
ON_ITS_WAY: Final = frozenset({"none", "setup", "active", "device", "pre-switchover"})


class QmpClient:
    """A connection to the QEMU that listens at a path; used by one thread, in a `with`."""

    def __init__(self, path: Path, limit_s: float = LIMIT_S) -> None:
        """Connect to *path*; raises `SandboxError` if QEMU does not answer there."""
        self._held = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(limit_s)
        try:
            self._socket.connect(os.fspath(path))
            self._receive("QMP")
        except (OSError, ValueError) as error:
            self._socket.close()
            raise SandboxError("the machine accepts no commands", str(error) or "it does not respond") from error
        self.do("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def do(
        self, order: str, handles: Sequence[int] = (), words: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send the command *order*, with open files if it takes any; return its answer.

        Raises:
            SandboxError: if it fails, QEMU ends, or does not answer.
        """
        sent = json.dumps({"execute": order, "arguments": {**(words or {}), **more}}).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [sent], list(handles))
            reply = self._receive("return", "error")
        except (OSError, ValueError) as error:
            raise SandboxError(
                f"the machine's command {order!r} failed", str(error) or "it does not respond"
            ) from error
        if "error" in reply:
            raise SandboxError(f"the machine's command {order!r} failed", str(reply["error"].get("desc", "")))
        answer = reply["return"]
        return answer if isinstance(answer, dict) else {"value": answer}

    def wait_for_migration(self, limit_s: float) -> None:
        """Wait until the memory is completely written or read.

        Raises:
            SandboxError: if that failed, or took longer than *limit_s*.
        """
        until = time.monotonic() + limit_s
        while (state := self.do("query-migrate")).get("status", "none") in ON_ITS_WAY:
            if time.monotonic() > until:
                raise SandboxError("its memory was not transferred", f"it took longer than {limit_s:g} s")
            time.sleep(BETWEEN_S)
        if state.get("status") != "completed":
            raise SandboxError("its memory was not transferred", str(state.get("error-desc") or state.get("status")))

    def _receive(self, *wanted: str) -> dict[str, Any]:
        while True:
            while b"\n" not in self._held:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise OSError("it ended")
                self._held += data
            line, _, self._held = self._held.partition(b"\n")
            reply = json.loads(line)
            if isinstance(reply, dict) and any(name in reply for name in wanted):
                return reply
