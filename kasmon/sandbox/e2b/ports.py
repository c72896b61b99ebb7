"""Connections to ports of a sandbox at the service: by a command there, as for its guest program, not a public URL."""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.guest_setup import OURS, PYTHON

if TYPE_CHECKING:
    import e2b

BLOCK_BYTES: Final = 1 << 16
LISTENS: Final = "A program in the sandbox must listen on this port of 127.0.0.1."


class E2bPorts:
    """Connects to the ports of one sandbox, which is resumed for it."""

    def __init__(self, access: service.ServiceAccess, identity: str, timeout_s: int) -> None:
        self._access, self._identity, self._timeout_s = access, identity, timeout_s

    def connect(self, port: int) -> socket.socket:
        """Return a connection to 127.0.0.1:*port* inside.

        Raises:
            SandboxError: if nothing listens there, or the sandbox cannot be reached.
        """
        sandbox = service.connected(self._access, self._identity, self._timeout_s)
        command = f"{PYTHON} {OURS}/stdio_join.py {port}"
        with service.ours(f"cannot reach port {port}"):
            handle = sandbox.commands.run(command, background=True, stdin=True, timeout=0, retain_output=False)
            said = _said(handle, port)
            next(said)
        ours, theirs = socket.socketpair()
        threading.Thread(target=_carry_in, args=(theirs, handle), daemon=True).start()
        threading.Thread(target=_carry_out, args=(theirs, said), daemon=True).start()
        return ours

    def close(self) -> None:
        """Do nothing: the connector holds no resources."""


def _said(handle: "e2b.CommandHandle[Any]", port: int) -> Iterator[bytes]:
    """Yield empty bytes once it is connected, then the data that the port sends.

    Raises:
        SandboxError: if it cannot connect.
    """
    held = wrong = ""
    try:
        for out, told, _ in handle:
            wrong += told or ""
            *whole, held = (held + (out or "")).split("\n")
            for line in whole:
                yield base64.b64decode(line)
        handle.wait()
    except service.sdk().CommandExitException as error:
        why = (wrong.strip().splitlines() or ["it gives no reason"])[-1]
        raise SandboxError(f"cannot reach port {port}", why, LISTENS) from error


def _carry_in(theirs: socket.socket, handle: "e2b.CommandHandle[Any]") -> None:
    with contextlib.suppress(Exception):  # the other direction ends too then
        while data := theirs.recv(BLOCK_BYTES):
            handle.send_stdin(base64.b64encode(data).decode("ascii") + "\n", service.REQUEST_S)
        handle.close_stdin(service.REQUEST_S)


def _carry_out(theirs: socket.socket, said: Iterator[bytes]) -> None:
    with theirs, contextlib.suppress(Exception):  # the reader gets EOF
        for data in said:
            theirs.sendall(data)
        theirs.shutdown(socket.SHUT_RDWR)
