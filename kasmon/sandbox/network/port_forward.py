"""Forwards a loopback port of this machine to a port inside a sandbox, on request."""

import contextlib
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

from kasmon.errors import RefusedError, SandboxError
from kasmon.sandbox.network import namespace_connect
from kasmon.sandbox.shared.processes import lives

HERE: Final = "127.0.0.1"
ANSWER_S: Final = 10.0
PIECE: Final = 64 * 1024
LISTENS: Final = "A program in the sandbox must listen on this port of 127.0.0.1."
MOST: Final = 64
"""Maximum simultaneous connections; further ones wait."""


class NetworkConnector:
    """Connections into the network of one sandbox on this machine, without help from inside. Linux only."""

    def __init__(self, pid: int, started: float, boot: str) -> None:
        """Join the network of a sandbox's first process. Raises `SandboxError` if that process has ended."""
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair()
        self._requests.settimeout(ANSWER_S)
        with theirs:
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", namespace_connect.__file__, str(pid)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        why = ""
        try:
            why = self._requests.recv(200).decode("utf-8", "replace")
        except OSError as error:
            why = str(error)
        if not lives(pid, started, boot):  # checked after the join, so it is the joined process
            why = "it has ended"
        if why != namespace_connect.JOINED:
            self.close()
            raise SandboxError("the sandbox's network cannot be reached", why or "its helper ended")

    def connect(self, port: int) -> socket.socket:
        """Return a connection to 127.0.0.1:*port* inside. Raises `SandboxError` if nothing listens there."""
        with self._lock:
            try:
                self._requests.sendall((port & 0xFFFFFFFF).to_bytes(4, "big"))
                received, handles, _, _ = socket.recv_fds(self._requests, 200, 1)
            except OSError as error:
                raise SandboxError(f"cannot reach port {port}", str(error)) from error
        if not handles:
            why = received.decode("utf-8", "replace") or "the sandbox ended"
            raise SandboxError(f"cannot reach port {port}", why, LISTENS)
        return socket.socket(fileno=handles[0])

    def close(self) -> None:
        """End the helper. Idempotent. Open connections stay."""
        self._requests.close()
        self._helper.wait(ANSWER_S)


class ListenerConnector:
    """Connections into a sandbox whose VM host end listens at *path* and multiplexes them over its one connection."""

    def __init__(self, path: str) -> None:
        self._path = path

    def connect(self, port: int) -> socket.socket:
        """Return a connection to 127.0.0.1:*port* inside. Raises `SandboxError` if nothing listens there."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(ANSWER_S)
            link.connect(self._path)
            link.sendall(b"%d\n" % port)
            received = b""
            while not received.endswith(b"\n") and (piece := link.recv(1)):  # what follows comes from the port
                received += piece
        except OSError as error:
            link.close()
            raise SandboxError(f"cannot reach port {port}", str(error)) from error
        if received != b"ok\n":
            link.close()
            why = received.decode("utf-8", "replace").strip() or "the sandbox ended"
            raise SandboxError(f"cannot reach port {port}", why, LISTENS)
        link.settimeout(None)
        return link

    def close(self) -> None:
        """Do nothing: no resource is held."""


class PortForward:
    """A listener on this machine's loopback; each connection to it is forwarded into the sandbox."""

    def __init__(self, connect: Callable[[], socket.socket], here: int = 0) -> None:
        """*connect* opens a connection into the sandbox; *here* 0 is any port. Raises `RefusedError` if it is used."""
        self._connect = connect
        self._slots = threading.BoundedSemaphore(MOST)
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((HERE, here))
        except (OSError, OverflowError) as error:
            self._listener.close()
            why = getattr(error, "strerror", None) or str(error)
            raise RefusedError(
                f"port {here} of this machine cannot be used: {why}.", hint="Leave it out to use any free port."
            ) from error
        self._listener.listen(16)
        self._wakes, self._wake = socket.socketpair()
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept connections until `close`."""
        while True:
            ready, _, _ = select.select([self._listener, self._wakes], [], [])
            if self._wakes in ready:
                break
            came, _ = self._listener.accept()
            self._slots.acquire()
            threading.Thread(target=self._forward, args=(came,), daemon=True).start()
        for each in (self._listener, self._wakes, self._wake):
            each.close()

    def close(self) -> None:
        """End `serve` and accept no more. Idempotent. Open connections continue to their end."""
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def _forward(self, came: socket.socket) -> None:
        try:
            with came, self._connect() as guest_end:
                back = threading.Thread(target=_pump, args=(guest_end, came), daemon=True)
                back.start()
                _pump(came, guest_end)
                back.join()
        except (OSError, SandboxError):
            pass  # the client sees its connection close
        finally:
            self._slots.release()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
