"""Multiplexes connections into and out of a sandbox over its single stream; a slow one does not block the others.

Both ends of the stream, inside and outside, use this module. Either asks the other for connections: the inside end for
the egress, the outside end for a port. On each connection an end has at most `WINDOW_BYTES` in flight that the other
has not acknowledged, so neither buffers more, whatever the other sends.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable

from kasmon.sandbox.guest.mux_frames import CALL, DROP, ENDS, SAYS, THERE, TOOK

WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 32 * 1024
MOST = 128
"""Connections at once; a further one is closed at once."""
WORDS_BYTES = 64
"""The longest first line of a caller, which names its destination."""
OUT = "out"
"""The destination of connections from inside: the egress on the outside."""
INSIDE, OUTSIDE = 1, 2
"""The number of the first connection that an end opens; the next ones follow in steps of two."""
PROXY_PORT = 3128

Emit = Callable[[int, int, bytes], None]
To = Callable[[str], socket.socket]
Notifier = Callable[[str], None]


class MuxConnection:
    """One multiplexed connection, at one end."""

    def __init__(self, channel: int, stream: socket.socket) -> None:
        stream.setblocking(False)
        self.channel, self.stream = channel, stream
        self.waiting = bytearray()
        """Data from the other end that this stream has not accepted yet."""
        self.room = WINDOW_BYTES
        self.untold = 0
        """How many bytes were accepted without an acknowledgement."""
        self.says_more = self.hears_more = True
        self.connects = False
        self.told: Notifier | None = None
        """Called once: with an empty text when it is connected, else with the reason why not."""


class ConnectionMux:
    """One end. Its `fileno` is readable when `serve` has something to do."""

    def __init__(self, emit: Emit, first: int, to: To) -> None:
        """
        Args:
            emit: sends a record's kind, connection number and content to the other end.
            first: `INSIDE` or `OUTSIDE`.
            to: opens the connection that the other end requests, possibly still connecting. Raises OSError if it
                is not allowed.
        """
        self._emit, self._next, self._first, self._to = emit, first, first, to
        self._events = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._ways: dict[int, MuxConnection] = {}
        self._listeners: list[tuple[socket.socket, Callable[[int], None]]] = []
        self._rests = False

    def fileno(self) -> int:
        return self._events.fileno()

    def serve(self, limit_s: float = 0.0) -> None:
        """Handle all ready files; waits for one up to *limit_s*, forever for -1."""
        for file, events in self._events.poll(limit_s):
            if handler := self._handlers.get(file):
                handler(events)

    def watch(self, file: int, handler: Callable[[int], None], wanted: int = select.EPOLLIN) -> None:
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

    def listen(self, listener: socket.socket, where: str) -> None:
        """Connect each client of *listener* to *where* at the other end."""
        self._take(listener, lambda came: self._begin(came, where, None))

    def ask(self, listener: socket.socket, do: Callable[[socket.socket, str], None]) -> None:
        """Call *do* with each client of *listener* and the first line that it sends."""
        self._take(listener, lambda came: _Caller(self, came, do))

    def call(self, stream: socket.socket, where: str) -> None:
        """Connect *stream* to *where* at the other end; it first gets the line `ok`, or the reason why not."""

        def report(why: str) -> None:
            with contextlib.suppress(OSError):
                stream.sendall((why or "ok").replace("\n", " ").encode() + b"\n")

        self._begin(stream, where, report)

    def rest(self) -> None:
        """Close all connections, and accept none until `go_on`; new clients wait in the backlog."""
        self.close_all()
        self._rests = True
        for listener, _ in self._listeners:
            self.forget(listener.fileno())

    def go_on(self) -> None:
        self._rests = False
        for listener, accept in self._listeners:
            self.watch(listener.fileno(), accept)

    def close_all(self) -> None:
        """Close all connections."""
        for way in list(self._ways.values()):
            self._drop(way, "it was parted")

    def _take(self, listener: socket.socket, act: Callable[[socket.socket], object]) -> None:
        listener.setblocking(False)

        def accept(_: int) -> None:
            with contextlib.suppress(OSError):
                act(listener.accept()[0])

        self._listeners.append((listener, accept))
        if not self._rests:
            self.watch(listener.fileno(), accept)

    def _begin(self, stream: socket.socket, where: str, told: Notifier | None) -> None:
        if self._rests or len(self._ways) >= MOST:
            if told:
                told("it is paused" if self._rests else "too many connections are already open")
            stream.close()
            return
        channel, self._next = self._next, (self._next + 2) & 0x7FFFFFFF or self._first
        way = self._ways[channel] = MuxConnection(channel, stream)
        way.told = told
        self._emit(CALL, channel, where.encode())
        self._watch(way)

    # Records from the other end.

    def handle_record(self, kind: int, channel: int, content: bytes) -> None:
        """Handle a record of the other end; one for a closed connection is ignored."""
        if kind == CALL:
            self._handle_call(channel, content)
            return
        way = self._ways.get(channel)
        if way is None:
            return
        if kind == THERE:
            self._tell(way, "")
        elif kind == SAYS:
            way.waiting += content
            if len(way.waiting) > WINDOW_BYTES or not way.hears_more:
                self._drop(way, "it sent more than allowed")
                return
            self._flush(way)
        elif kind == TOOK:
            way.room = min(WINDOW_BYTES, way.room + int.from_bytes(content, "big"))
        elif kind == ENDS:
            way.hears_more = False
            self._flush(way)
        elif kind == DROP:
            self._close_connection(way, content.decode("utf-8", "replace"))
            return
        self._settle(way)

    def _handle_call(self, channel: int, content: bytes) -> None:
        why = ""
        if self._rests or len(self._ways) >= MOST or channel in self._ways or channel % 2 == self._first % 2:
            why = "no new connection is accepted now"
        else:
            try:
                stream = self._to(content.decode("ascii", "replace"))
            except (OSError, OverflowError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
        if why:
            self._emit(DROP, channel, why.encode())
            return
        way = self._ways[channel] = MuxConnection(channel, stream)
        way.connects = True
        self._watch(way)

    # One connection.

    def _watch(self, way: MuxConnection) -> None:
        wanted = 0
        if way.says_more and way.room > 0 and not way.connects and not way.told:
            wanted |= select.EPOLLIN
        if way.connects or way.waiting:
            wanted |= select.EPOLLOUT
        self.watch(way.stream.fileno(), lambda events: self._handle_ready(way, events), wanted)

    def _handle_ready(self, way: MuxConnection, events: int) -> None:
        if way.connects:
            if not events & (select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP):
                return
            if fault := way.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._drop(way, os.strerror(fault))
                return
            way.connects = False
            self._emit(THERE, way.channel, b"")
        if way.waiting:
            self._flush(way)
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and way.channel in self._ways:
            self._hear(way)
        self._settle(way)

    def _hear(self, way: MuxConnection) -> None:
        if not way.says_more or way.room <= 0:
            return
        try:
            data = way.stream.recv(min(PIECE_BYTES, way.room))
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(way, error.strerror or str(error))
            return
        if data:
            way.room -= len(data)
            self._emit(SAYS, way.channel, data)
        else:
            way.says_more = False
            self._emit(ENDS, way.channel, b"")

    def _flush(self, way: MuxConnection) -> None:
        """Write pending data to the stream, and acknowledge it to the other end."""
        if way.connects:
            return
        try:
            while way.waiting:
                count = way.stream.send(memoryview(way.waiting)[:PIECE_BYTES].tobytes())
                del way.waiting[:count]
                way.untold += count
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(way, error.strerror or str(error))
            return
        if way.untold and (not way.waiting or way.untold >= WINDOW_BYTES // 4):
            self._emit(TOOK, way.channel, way.untold.to_bytes(4, "big"))
            way.untold = 0

    def _settle(self, way: MuxConnection) -> None:
        """Forward the other end's EOF to the stream, and update what to wait for; close it once both sides ended."""
        if way.channel not in self._ways:
            return
        if not way.hears_more and not way.waiting and not way.connects:
            with contextlib.suppress(OSError):
                way.stream.shutdown(socket.SHUT_WR)
            if not way.says_more:
                self._close_connection(way, "")
                return
        self._watch(way)

    def _drop(self, way: MuxConnection, why: str) -> None:
        self._emit(DROP, way.channel, why.encode())
        self._close_connection(way, why)

    def _close_connection(self, way: MuxConnection, why: str) -> None:
        self._tell(way, why or "it ended")
        self._ways.pop(way.channel, None)
        self.forget(way.stream.fileno())
        way.stream.close()

    def _tell(self, way: MuxConnection, why: str) -> None:
        told, way.told = way.told, None
        if told:
            told(why)


class _Caller:
    """A new client until its first line is complete."""

    def __init__(self, ways: ConnectionMux, stream: socket.socket, do: Callable[[socket.socket, str], None]) -> None:
        stream.setblocking(False)
        self._ways, self._stream, self._do, self._line = ways, stream, do, b""
        ways.watch(stream.fileno(), lambda _: self._hear())

    def _hear(self) -> None:
        try:
            piece = self._stream.recv(1)  # data after the line is for the other end
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece == b"\n":
            self._ways.forget(self._stream.fileno())
            self._do(self._stream, self._line.decode("ascii", "replace"))
            return
        self._line += piece
        if not piece or len(self._line) > WORDS_BYTES:
            self._ways.forget(self._stream.fileno())
            self._stream.close()


def to_port(where: str) -> socket.socket:
    """Open a connection to the port *where* of this end's loopback; it may still be connecting.

    Raises:
        OSError, OverflowError, ValueError: if that fails.
    """
    port = int(where)
    return _connecting(socket.socket(socket.AF_INET, socket.SOCK_STREAM), ("127.0.0.1", port))


def to_gate(where: str, path: str) -> socket.socket:
    """Open a connection to the egress, which listens at *path*.

    Raises:
        OSError: if that fails, or *where* is not the egress.
    """
    if where != OUT:
        raise OSError(1, "unknown destination")
    return _connecting(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _connecting(stream: socket.socket, address: "tuple[str, int] | str") -> socket.socket:
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


def door(port: int = PROXY_PORT) -> socket.socket:
    """Return a listening socket at the proxy port that programs inside use.

    Raises:
        OSError: if the port is in use.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener
