"""Connections into a sandbox at the service: by a command there that joins its stdin and stdout to a socket or port."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kasmon.errors import SandboxError
from kasmon.sandbox.e2b import service
from kasmon.sandbox.e2b.guest_setup import KASMON, PYTHON
from kasmon.sandbox.guest.frames import LineReader, encode_line

if TYPE_CHECKING:
    import e2b

BLOCK_BYTES: Final = 1 << 16
LISTENS: Final = "A program in the sandbox must listen on this port of 127.0.0.1."


class CommandStream:
    """A connection to *destination* inside, the path of a socket or a port; see `guest/stdio_join.py`."""

    def __init__(self, sandbox: "e2b.Sandbox", destination: str) -> None:
        command = f"{PYTHON} {KASMON}/main.py join {destination}"
        self._handle = sandbox.commands.run(command, background=True, stdin=True, timeout=0, retain_output=False)
        self.stderr = ""

    def send(self, data: bytes) -> None:
        self._handle.send_stdin(encode_line(data).decode("ascii"), service.REQUEST_S)

    def receive(self) -> Iterator[bytes]:
        """Yield what it sends; first empty bytes, if *destination* is a port."""
        lines = LineReader()
        for stdout, stderr, _ in self._handle:
            self.stderr += stderr or ""
            yield from lines.feed((stdout or "").encode())

    def require_success(self) -> None:
        """Wait for its end; raises the SDK's `CommandExitException` if it failed."""
        self._handle.wait()

    def close(self) -> None:
        """End it after what was sent."""
        self._handle.close_stdin(service.REQUEST_S)

    def kill(self) -> None:
        self._handle.kill()


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
        with service.converted_errors(f"cannot reach port {port}"):
            stream = CommandStream(sandbox, str(port))
            received = _received(stream, port)
            next(received)
        near_end, far_end = socket.socketpair()
        threading.Thread(target=_forward_in, args=(far_end, stream), daemon=True).start()
        threading.Thread(target=_forward_out, args=(far_end, received), daemon=True).start()
        return near_end

    def close(self) -> None:
        """Do nothing: the connector holds no resources."""


def _received(stream: CommandStream, port: int) -> Iterator[bytes]:
    """Yield what `CommandStream.receive` does.

    Raises:
        SandboxError: if it cannot connect.
    """
    try:
        yield from stream.receive()
        stream.require_success()
    except service.sdk().CommandExitException as error:
        why = (stream.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        raise SandboxError(f"cannot reach port {port}", why, LISTENS) from error


def _forward_in(far_end: socket.socket, stream: CommandStream) -> None:
    with contextlib.suppress(Exception):  # the other direction ends too then
        while data := far_end.recv(BLOCK_BYTES):
            stream.send(data)
        stream.close()


def _forward_out(far_end: socket.socket, received: Iterator[bytes]) -> None:
    with far_end, contextlib.suppress(Exception):  # the reader gets EOF
        for data in received:
            far_end.sendall(data)
        far_end.shutdown(socket.SHUT_RDWR)
