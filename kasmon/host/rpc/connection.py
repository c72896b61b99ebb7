"""One client of a host, from the host's side: a process of the same user; the host never waits for it."""

import asyncio
import logging
import socket
from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias

from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc import control
from kasmon.host.rpc.codec import Unpacker, WireError, pack
from kasmon.host.rpc.errors import failed
from kasmon.host.rpc.frames import Frame, NumberedFrame
from kasmon.host.rpc.peer import PeerProcess, is_ours, peer_of

SEND_BUFFER_BYTES = 64 * 1024
"""How much the system buffers for a slow reader; later frames wait here and can still be replaced."""

Push: TypeAlias = Frame | Callable[[], Frame | None]

log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """The server that a client connected to."""

    is_closing: bool
    connections: "set[ClientConnection]"

    def handle(self, connection: "ClientConnection", body: bytes, /) -> None: ...

    def handle_control(self, connection: "ClientConnection", kind: int, /) -> None: ...

    def forget(self, connection: "ClientConnection", /) -> None: ...


class ClientConnection(asyncio.Protocol):
    """One client of this host."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self.as_agent = False
        """Whether the client declared itself an agent."""
        self.greeted = False
        self.closed = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._peer = PeerProcess(-1, 0)
        self._transport: asyncio.Transport | None = None
        self._unpacker = Unpacker()
        self._first: bytes | None = b""
        """The bytes so far, until it is known whether a control frame comes; None once it is another one."""
        self._paused = False
        self._waiting: dict[Hashable, Push] = {}

    @property
    def peer_pid(self) -> int:
        """The process that connected; 0 if the system does not report it."""
        return self._peer.pid

    @property
    def is_open(self) -> bool:
        """Whether pushed frames can still reach the client."""
        return self._transport is not None and not self._transport.is_closing()

    def push(self, frame: Push, key: Hashable | None = None) -> None:
        """Send *frame*, or the result of calling it at the moment of sending.

        A slow client gets only the newest of all pushes with the same *key*; without a key, each.
        """
        if not self.is_open:
            return
        if not self._paused:
            self._write(frame)
        elif key is None:
            self._waiting[object()] = frame
        else:
            self._waiting.pop(key, None)
            self._waiting[key] = frame

    def send_control(self, frame: bytes) -> None:
        """Send a control frame, then close the connection."""
        if self._transport is not None and self.is_open:
            self._transport.write(frame)
            self._transport.close()

    def close(self) -> None:
        """Send what is waiting, then close the connection."""
        if self._transport is None:
            return
        for frame in self._waiting.values():
            self._write(frame)
        self._waiting.clear()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self, frame: Push) -> None:
        built = frame() if callable(frame) else frame
        if built is None or self._transport is None:
            return
        try:
            self._transport.write(pack(built))
        except UsageError as error:
            log.warning("%s", error)
            if isinstance(built, NumberedFrame):
                self._transport.write(pack(failed(built.n, RefusedError(error.message))))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected: socket.socket = transport.get_extra_info("socket")
        try:
            self._peer = peer_of(connected)
        except OSError:
            log.warning("a client was refused: the system does not report its user")
            transport.abort()
            return
        if self._owner.is_closing:
            transport.abort()
            return
        if not is_ours(self._peer):
            log.warning("a client of user %s was refused", self._peer.uid)
            transport.abort()
            return
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._owner.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            self._first += data
            if control.MAGIC.startswith(self._first[: len(control.MAGIC)]):
                if (kind := control.parse_request(self._first)) is not None and self.is_open:
                    self._owner.handle_control(self, kind)
                return
            data, self._first = self._first, None
        try:
            for body in self._unpacker.feed(data):
                if not self.is_open:
                    return
                self._owner.handle(self, body)
        except WireError as error:
            log.warning("a client was dropped: %s", error)
            self.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        while self._waiting and not self._paused:
            key = next(iter(self._waiting))
            self._write(self._waiting.pop(key))

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        self._owner.forget(self)
