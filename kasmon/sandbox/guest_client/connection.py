"""Connections to one guest program: each sends and receives whole frames, each within a time limit.

The sandbox is not trusted: a frame that is too large, or not of the expected shape, is refused.

A pool retries a request whose connection breaks. Nothing is done twice by that: a partial request has no effect; once a
whole one was sent, it is repeated only to the same instance, which recognizes a run by its key.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from kasmon.errors import AgentLostError
from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError, pack

BLOCK_BYTES: Final = 1 << 18

Shape = TypeVar("Shape")


class AgentConnectionError(Exception):
    """The connection is unusable; `is_sent` says whether the last request was sent completely.

    `is_wrong`: it did not break, but sent what no guest program of kasmon sends.
    """

    def __init__(self, why: str, *, is_sent: bool, is_wrong: bool = False) -> None:
        super().__init__(why)
        self.is_sent, self.is_wrong = is_sent, is_wrong


class AgentConnection:
    """A connection, used by one thread at a time."""

    def __init__(self, path: str, limit_s: float) -> None:
        """Raise `AgentConnectionError` if no process listens at *path*."""
        self._reader, self._frames = FrameReader(), deque[bytes]()
        self.is_sent = False
        self.instance = ""
        """The id of the guest program's process that answers; a restarted one has another."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(limit_s)
        try:
            self._socket.connect(path)
        except OSError as error:
            self.close()
            raise AgentConnectionError(error.strerror or str(error), is_sent=False) from error

    def send(self, frame: bytes, limit_s: float) -> None:
        """Send *frame*. Raises `AgentConnectionError` if not all was sent: the guest program ignores a partial one."""
        self.is_sent = False
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(frame)
        except OSError as error:
            raise AgentConnectionError(f"it accepted no request ({error.strerror or error})", is_sent=False) from error
        self.is_sent = True

    def receive(self, shape: type[Shape], deadline: float) -> Shape:
        """Return the next frame, as *shape*; *deadline* is of the monotonic clock.

        Raises:
            TimeoutError: if it is not complete by then; the connection stays usable.
            AgentConnectionError: if the connection ended, or the frame is not of that shape.
        """
        while not self._frames:
            try:
                self._frames.extend(self._reader.feed(self._read(deadline)))
            except FrameTooLargeError as error:
                raise AgentConnectionError(str(error), is_sent=self.is_sent, is_wrong=True) from error
        try:
            return msgspec.json.decode(self._frames.popleft(), type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"its answer is not valid ({error})"
            raise AgentConnectionError(why, is_sent=self.is_sent, is_wrong=True) from error

    def _read(self, deadline: float) -> bytes:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        try:
            self._socket.settimeout(remaining_s)
            data = self._socket.recv(BLOCK_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise AgentConnectionError(
                f"the connection broke ({error.strerror or error})", is_sent=self.is_sent
            ) from error
        if not data:
            raise AgentConnectionError("the connection ended", is_sent=self.is_sent)
        return data

    def break_off(self) -> None:
        """End the wait of another thread on this connection."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()


def pack_request(message: object) -> bytes:
    """Return *message* as a frame. Raises `ValueError` if it is too large, or contains text that cannot be encoded."""
    return pack(msgspec.json.encode(message))


PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.6)
LIMIT_S: Final = 10.0
"""How long the guest program may take to identify itself, or to accept a request."""

Answer = TypeVar("Answer")


class _Hello(msgspec.Struct, frozen=True):
    instance: str


class ConnectionPool:
    """Used from any thread; each caller has a connection of its own until it got its answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[AgentConnection] = []
        self._used: set[AgentConnection] = set()
        self._is_closed = False

    def close(self) -> None:
        """Close all connections; waiting calls raise `AgentLostError`."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._used:
                connection.break_off()
        for connection in idle:
            connection.close()

    def ask(self, frame: bytes, receive: Callable[[AgentConnection], Answer], *, again: bool = True) -> Answer:
        """Send *frame* and read the answer with *receive*; retry, only to the same instance once it may have it.

        *again* False: no second try where the request may have been received.

        Raises:
            AgentLostError: if that fails for about two seconds, or *receive* times out.
        """
        sent_to = ""
        why = "it is closed"
        for pause_s in (*PAUSES_S, 0.0):
            connection = None
            try:
                connection = self._acquire()
                if sent_to and connection.instance != sent_to:
                    why = "it was replaced after the request was sent"
                    self._discard(connection)
                    break
                connection.send(frame, LIMIT_S)
                sent_to = connection.instance
                answer = receive(connection)
            except AgentConnectionError as error:
                why = str(error)
                self._discard(connection)
                if self._is_closed or error.is_wrong or (error.is_sent and not again):
                    break
                time.sleep(pause_s)
            except TimeoutError:
                self._discard(connection)
                may_have_run = connection is not None or bool(sent_to)
                raise AgentLostError("it does not respond in time", may_have_run=may_have_run) from None
            except BaseException:
                self._discard(connection)
                raise
            else:
                self._release(connection)
                return answer
        raise AgentLostError(why, may_have_run=bool(sent_to))

    def _acquire(self) -> AgentConnection:
        """Return an idle connection, or a new one. After a `TimeoutError`, a retry is useless."""
        with self._lock:
            if self._is_closed:
                raise AgentConnectionError("it is closed", is_sent=False)
            if self._idle:
                connection = self._idle.pop()
                self._used.add(connection)
                return connection
        connection = AgentConnection(self._path, LIMIT_S)
        with self._lock:
            self._used.add(connection)
        try:
            connection.send(pack_request({"id": "", "type": "ping", "nonce": ""}), LIMIT_S)
            connection.instance = connection.receive(_Hello, time.monotonic() + LIMIT_S).instance
        except TimeoutError:
            self._discard(connection)
            raise
        except AgentConnectionError as error:
            self._discard(connection)
            raise AgentConnectionError(str(error), is_sent=False, is_wrong=error.is_wrong) from error
        return connection

    def _release(self, connection: AgentConnection) -> None:
        with self._lock:
            self._used.discard(connection)
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _discard(self, connection: AgentConnection | None) -> None:
        if connection:
            with self._lock:
                self._used.discard(connection)
            connection.close()
