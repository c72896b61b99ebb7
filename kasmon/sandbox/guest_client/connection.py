"""One connection to the guest program: sends and receives whole frames, each within a time limit.

The sandbox is not trusted: a frame that is too large, or not of the expected shape, is refused.
"""

import socket
import time
from collections import deque
from typing import Final, TypeVar

import msgspec

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
        """
        Raises:
            AgentConnectionError: if no process listens at *path*.
        """
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
        """Send *frame*, as `pack_request` makes it.

        Raises:
            AgentConnectionError: if it was not sent completely: the guest program ignores a partial frame.
        """
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
    """Return *message* as a frame.

    Raises:
        ValueError: if it is too large, or contains text that cannot be encoded.
    """
    return pack(msgspec.json.encode(message))
