"""Multiplexes connections into and out of a sandbox over its single stream; a slow one does not block the others.

Both ends of the stream, inside and outside, use this module. Either asks the other for connections: the inside end for
the egress, the outside end for a port. On each connection an end has at most `WINDOW_BYTES` in flight that the other
has not acknowledged, so neither buffers more, whatever the other sends.
"""

import contextlib
import json
import os
import selectors
import socket
import struct
from collections.abc import Callable

from kasmon.sandbox.guest.frames import FrameReader, pack

HEAD = struct.Struct(">BI")
"""The beginning of a record, which is the content of a frame: its kind, and the number of its connection."""
REQUEST, MESSAGE, CONTENT, CONNECT, CONNECTED, DATA, ACKNOWLEDGE, END, CLOSE = range(1, 10)
"""JSON from the host end, JSON from the guest, content of a file; and of a connection: it is requested, is open, sends,
has accepted so many bytes, reached EOF, is closed with a reason."""
READABLE, WRITABLE = selectors.EVENT_READ, selectors.EVENT_WRITE
CONTENT_BYTES = 1 << 16
RECORD_BYTES = 1 << 22

WINDOW_BYTES = 256 * 1024
ACKNOWLEDGED_BYTES = WINDOW_BYTES // 4
"""After so many accepted bytes an end acknowledges them: what fits into the rest costs no message back."""
PIECE_BYTES = 32 * 1024
MOST = 128
"""Connections at once; a further one is closed at once."""
DESTINATION_BYTES = 64
"""The longest first line of a caller, which names its destination."""
EGRESS = "out"
"""The destination of connections from inside: the egress on the outside."""
AGENT = "agent"
"""The guest program, as a destination. Any number of connections may lead there: only the host opens them."""
INSIDE, OUTSIDE = 1, 2
"""The number of the first connection that an end opens; the next ones follow in steps of two."""
PROXY_PORT = 3128

Emit = Callable[[int, int, bytes], None]
Connect = Callable[[str], socket.socket]
SendReport = Callable[[str], None]


def pack_record(kind: int, channel: int = 0, content: bytes = b"") -> bytes:
    return pack(HEAD.pack(kind, channel) + content)


def pack_message(kind: int, message: dict[str, object]) -> bytes:
    return pack_record(kind, 0, json.dumps(message).encode("ascii"))


def parse_record(frame: bytes) -> tuple[int, int, bytes]:
    """Return kind, connection and content. Raises `ValueError` for no record: nothing after it can be trusted."""
    if len(frame) < HEAD.size or not REQUEST <= frame[0] <= CLOSE:
        raise ValueError(f"no record: {frame[:16]!r}")
    kind, channel = HEAD.unpack_from(frame)
    return kind, channel, frame[HEAD.size :]


class MuxConnection:
    """One multiplexed connection, at one end."""

    def __init__(self, channel: int, stream: socket.socket, destination: str) -> None:
        stream.setblocking(False)
        self.channel, self.stream, self.destination = channel, stream, destination
        self.frames = FrameReader()
        """For a listener to what is sent here, if there is one."""
        self.waiting = bytearray()
        """Data from the other end that this stream has not accepted yet."""
        self.window = WINDOW_BYTES
        self.unacknowledged = 0
        """How many bytes were accepted without an acknowledgement."""
        self.reads_more = self.writes_more = True
        self.is_connecting = False
        self.report: SendReport | None = None
        """Called once: with an empty text when it is connected, else with the reason why not."""


class ConnectionMux:
    """One end. Its `fileno` is readable when `serve` has something to do."""

    def __init__(
        self,
        emit: Emit,
        first: int,
        connect: Connect,
        before_data: Callable[[MuxConnection, bytes], None] = lambda connection, data: None,
    ) -> None:
        """
        Args:
            emit: sends a record's kind, connection number and content to the other end.
            first: `INSIDE` or `OUTSIDE`.
            connect: opens the connection that the other end requests, possibly still connecting. Raises OSError if it
                is not allowed.
            before_data: called with a connection and its data before that is sent. Raises OSError to close it.
        """
        self._emit, self._next, self._first, self._connect, self._before_data = emit, first, first, connect, before_data
        self._events = selectors.DefaultSelector()  # epoll, or kqueue
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._connections: dict[int, MuxConnection] = {}
        self._listeners: list[tuple[socket.socket, Callable[[int], None]]] = []
        self._is_suspended = False

    def fileno(self) -> int:
        return self._events.fileno()

    def serve(self, limit_s: float = 0.0) -> None:
        """Handle all ready files; waits for one up to *limit_s*, forever for -1."""
        for key, events in self._events.select(None if limit_s < 0 else limit_s):
            if handler := self._handlers.get(key.fd):
                handler(events)

    def watch(self, file: int, handler: Callable[[int], None], wanted: int = READABLE) -> None:
        """Call *handler* from `serve` with the ready events of *wanted* for *file*; 0 unregisters it."""
        is_known = file in self._handlers
        if not wanted:
            self.forget(file)
            return
        self._handlers[file] = handler
        (self._events.modify if is_known else self._events.register)(file, wanted)

    def forget(self, file: int) -> None:
        """Stop watching *file*; to be called before it is closed."""
        if self._handlers.pop(file, None):
            self._events.unregister(file)

    # Accepting connections.

    def listen(self, listener: socket.socket, destination: str) -> None:
        """Connect each client of *listener* to *destination* at the other end."""
        self._accept(listener, lambda stream: self._open(stream, destination, None))

    def listen_for_destination(self, listener: socket.socket, do: Callable[[socket.socket, str], None]) -> None:
        """Call *do* with each client of *listener* and the first line that it sends."""
        self._accept(listener, lambda stream: _Caller(self, stream, do))

    def connect(self, stream: socket.socket, destination: str, report: "SendReport | None" = None) -> None:
        """Connect *stream* to *destination* at the other end.

        *report* gets an empty text then, else the reason why not. Without it, *stream* first gets the line `ok`, or the
        reason.
        """

        def send_line(why: str) -> None:
            with contextlib.suppress(OSError):
                stream.sendall((why or "ok").replace("\n", " ").encode() + b"\n")

        self._open(stream, destination, report or send_line)

    def disconnect(self, stream: socket.socket, why: str) -> None:
        """Close *stream*, and its connection at the other end, if it still is one of this end's."""
        for connection in [each for each in self._connections.values() if each.stream is stream]:
            self._drop(connection, why)

    def suspend(self) -> None:
        """Close all connections, and accept none until `resume`; new clients wait in the backlog."""
        self.close_all()
        self._is_suspended = True
        for listener, _ in self._listeners:
            self.forget(listener.fileno())

    def resume(self) -> None:
        self._is_suspended = False
        for listener, accept in self._listeners:
            self.watch(listener.fileno(), accept)

    def close_all(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection, "it was closed")

    def _accept(self, listener: socket.socket, act: Callable[[socket.socket], object]) -> None:
        listener.setblocking(False)

        def accept(_: int) -> None:
            with contextlib.suppress(OSError):
                act(listener.accept()[0])

        self._listeners.append((listener, accept))
        if not self._is_suspended:
            self.watch(listener.fileno(), accept)

    def _open(self, stream: socket.socket, destination: str, report: SendReport | None) -> None:
        if self._is_suspended or self._is_full(destination):
            if report:
                report("it is paused" if self._is_suspended else "too many connections are already open")
            stream.close()
            return
        channel, self._next = self._next, (self._next + 2) & 0x7FFFFFFF or self._first
        connection = self._connections[channel] = MuxConnection(channel, stream, destination)
        connection.report = report
        self._emit(CONNECT, channel, destination.encode())
        self._watch(connection)

    def _is_full(self, destination: str) -> bool:
        return destination != AGENT and sum(each.destination != AGENT for each in self._connections.values()) >= MOST

    # Records from the other end.

    def handle_record(self, kind: int, channel: int, content: bytes) -> None:
        """Handle a record of the other end; one for a closed connection is ignored."""
        if kind == CONNECT:
            self._handle_connect(channel, content)
            return
        connection = self._connections.get(channel)
        if connection is None:
            return
        if kind == CONNECTED:
            self._report(connection, "")
        elif kind == DATA:
            connection.waiting += content
            if len(connection.waiting) > WINDOW_BYTES or not connection.writes_more:
                self._drop(connection, "it sent more than allowed")
                return
            self._flush(connection)
        elif kind == ACKNOWLEDGE:
            connection.window = min(WINDOW_BYTES, connection.window + int.from_bytes(content, "big"))
        elif kind == END:
            connection.writes_more = False
            self._flush(connection)
        elif kind == CLOSE:
            self._close_connection(connection, content.decode("utf-8", "replace"))
            return
        self._update(connection)

    def _handle_connect(self, channel: int, content: bytes) -> None:
        why, destination = "", content.decode("ascii", "replace")
        is_valid = channel not in self._connections and channel % 2 != self._first % 2
        if self._is_suspended or self._is_full(destination) or not is_valid:
            why = "no new connection is accepted now"
        else:
            try:
                stream = self._connect(destination)
            except (OSError, OverflowError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
        if why:
            self._emit(CLOSE, channel, why.encode())
            return
        connection = self._connections[channel] = MuxConnection(channel, stream, destination)
        connection.is_connecting = True
        self._watch(connection)

    # One connection.

    def _watch(self, connection: MuxConnection) -> None:
        wanted = 0
        if connection.reads_more and connection.window > 0 and not connection.is_connecting and not connection.report:
            wanted |= READABLE
        if connection.is_connecting or connection.waiting:
            wanted |= WRITABLE
        self.watch(connection.stream.fileno(), lambda events: self._handle_ready(connection, events), wanted)

    def _handle_ready(self, connection: MuxConnection, events: int) -> None:
        if connection.is_connecting:
            if not events & WRITABLE:
                return
            if fault := connection.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._drop(connection, os.strerror(fault))
                return
            connection.is_connecting = False
            self._emit(CONNECTED, connection.channel, b"")
        if connection.waiting:
            self._flush(connection)
        if events & READABLE and connection.channel in self._connections:
            self._read(connection)
        self._update(connection)

    def _read(self, connection: MuxConnection) -> None:
        if not connection.reads_more or connection.window <= 0:
            return
        try:
            data = connection.stream.recv(min(PIECE_BYTES, connection.window))
            self._before_data(connection, data)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(connection, error.strerror or str(error))
            return
        if data:
            connection.window -= len(data)
            self._emit(DATA, connection.channel, data)
        else:
            connection.reads_more = False
            self._emit(END, connection.channel, b"")

    def _flush(self, connection: MuxConnection) -> None:
        """Write pending data to the stream, and acknowledge it to the other end once it is a part of the window."""
        if connection.is_connecting:
            return
        try:
            while connection.waiting:
                count = connection.stream.send(memoryview(connection.waiting)[:PIECE_BYTES].tobytes())
                del connection.waiting[:count]
                connection.unacknowledged += count
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(connection, error.strerror or str(error))
            return
        if connection.unacknowledged >= ACKNOWLEDGED_BYTES:
            self._emit(ACKNOWLEDGE, connection.channel, connection.unacknowledged.to_bytes(4, "big"))
            connection.unacknowledged = 0

    def _update(self, connection: MuxConnection) -> None:
        """Forward the other end's EOF to the stream, and update what to wait for; close it once both sides ended."""
        if connection.channel not in self._connections:
            return
        if not connection.writes_more and not connection.waiting and not connection.is_connecting:
            with contextlib.suppress(OSError):
                connection.stream.shutdown(socket.SHUT_WR)
            if not connection.reads_more:
                self._close_connection(connection, "")
                return
        self._watch(connection)

    def _drop(self, connection: MuxConnection, why: str) -> None:
        self._emit(CLOSE, connection.channel, why.encode())
        self._close_connection(connection, why)

    def _close_connection(self, connection: MuxConnection, why: str) -> None:
        self._report(connection, why or "it ended")
        self._connections.pop(connection.channel, None)
        self.forget(connection.stream.fileno())
        connection.stream.close()

    def _report(self, connection: MuxConnection, why: str) -> None:
        report, connection.report = connection.report, None
        if report:
            report(why)


class _Caller:
    """A new client until its first line is complete."""

    def __init__(self, mux: ConnectionMux, stream: socket.socket, do: Callable[[socket.socket, str], None]) -> None:
        stream.setblocking(False)
        self._mux, self._stream, self._do, self._line = mux, stream, do, b""
        mux.watch(stream.fileno(), lambda _: self._read())

    def _read(self) -> None:
        try:
            piece = self._stream.recv(1)  # data after the line is for the other end
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece == b"\n":
            self._mux.forget(self._stream.fileno())
            self._do(self._stream, self._line.decode("ascii", "replace"))
            return
        self._line += piece
        if not piece or len(self._line) > DESTINATION_BYTES:
            self._mux.forget(self._stream.fileno())
            self._stream.close()


def connect_port(destination: str) -> socket.socket:
    """Open a connection to the port *destination* of this end's loopback; it may still be connecting.

    Raises:
        OSError, OverflowError, ValueError: if that fails.
    """
    port = int(destination)
    return _start_connecting(socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("127.0.0.1", port))


def connect_path(destination: str, only: str, path: str) -> socket.socket:
    """Open a connection to the socket at *path*. Raises `OSError` if that fails, or *destination* is not *only*."""
    if destination != only:
        raise OSError(1, "unknown destination")
    return _start_connecting(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _start_connecting(stream: socket.socket, address: "tuple[str, int] | str") -> socket.socket:
    stream.setblocking(False)
    try:
        stream.connect(address)
    except BlockingIOError:
        if stream.family == socket.AF_UNIX:  # its queue is full
            stream.close()
            raise
    except (OSError, OverflowError):
        stream.close()
        raise
    return stream


def listen_for_proxy() -> socket.socket:
    """Return a listening socket at the proxy port that programs inside use. Raises `OSError` if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", PROXY_PORT))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener
