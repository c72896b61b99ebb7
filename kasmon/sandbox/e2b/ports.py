"""Connections to ports of a sandbox at the service: by a command there, as for its guest program, not a public URL."""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.guest_setup import KASMON, PYTHON

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
        sandbox = service.connect(self._access, self._identity, self._timeout_s)
        command = f"{PYTHON} {KASMON}/stdio_join.py {port}"
        with service.converted_errors(f"cannot reach port {port}"):
            handle = sandbox.commands.run(command, background=True, stdin=True, timeout=0, retain_output=False)
            received = _received(handle, port)
            next(received)
        near_end, far_end = socket.socketpair()
        threading.Thread(target=_forward_in, args=(far_end, handle), daemon=True).start()
        threading.Thread(target=_forward_out, args=(far_end, received), daemon=True).start()
        return near_end

    def close(self) -> None:
        """Do nothing: the connector holds no resources."""


def _received(handle: "e2b.CommandHandle[Any]", port: int) -> Iterator[bytes]:
    """Yield empty bytes once it is connected, then the data that the port sends.

    Raises:
        SandboxError: if it cannot connect.
    """
    partial = stderr_text = ""
    try:
        for stdout, stderr, _ in handle:
            stderr_text += stderr or ""
            *lines, partial = (partial + (stdout or "")).split("\n")
            for line in lines:
                yield base64.b64decode(line)
        handle.wait()
    except service.sdk().CommandExitException as error:
        why = (stderr_text.strip().splitlines() or ["it gives no reason"])[-1]
        raise SandboxError(f"cannot reach port {port}", why, LISTENS) from error


def _forward_in(far_end: socket.socket, handle: "e2b.CommandHandle[Any]") -> None:
    with contextlib.suppress(Exception):  # the other direction ends too then
        while data := far_end.recv(BLOCK_BYTES):
            handle.send_stdin(base64.b64encode(data).decode("ascii") + "\n", service.REQUEST_S)
        handle.close_stdin(service.REQUEST_S)


def _forward_out(far_end: socket.socket, received: Iterator[bytes]) -> None:
    with far_end, contextlib.suppress(Exception):  # the reader gets EOF
        for data in received:
            far_end.sendall(data)
        far_end.shutdown(socket.SHUT_RDWR)
