"""Stream between a stdio proxy and its process inside: bytes arrive exactly once, even if connections break.

Both directions are counted in bytes. Input that the process has not taken is sent again on the next connection, from
the position that the guest reports.
"""

import base64
import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError
from kasmon.sandbox.guest_client.connection import pack_request

PIECE_BYTES: Final = 1 << 15
MOST_BYTES: Final = 1 << 20
"""Maximum of untaken input; reading stops at it."""
HAS_BYTES: Final = 1 << 15
"""After so many bytes their receipt is acknowledged."""
CONNECT_S: Final = 5.0


class StreamFrame(msgspec.Struct):
    """A frame from the guest; only its shape is validated."""

    id: str = ""
    type: str = ""
    name: str = ""
    at: int = 0
    data: str = ""
    taken: int = 0
    code: int = 0
    pid: int = 0
    why: str = ""
    stderr: str = ""
    started: bool = False


class NoSuchRunError(Exception):
    """The guest does not know the process: it is gone, with its sandbox."""


class ProcessStream:
    """The stream of the process *run*. *said* is called with a stream's name and bytes, each once and in order."""

    def __init__(self, run: str, said: Callable[[str, bytes], None], has: Mapping[str, int] = {}) -> None:
        self.run = run
        self.code: int | None = None
        """The exit code of the process; None while it runs."""
        self.has = dict(has)
        """How many bytes of each stream were received."""
        self._on_output = said
        self._acknowledged: dict[str, int] = {}
        self._pending = bytearray()
        self._taken: int | None = None
        """How many bytes of input the process took in total; None: not yet reported."""
        self._is_under_way = False
        self._is_closed = self._is_close_sent = False
        self._connection: socket.socket | None = None
        self._frames = FrameReader()
        self._is_joined = False

    @property
    def is_joined(self) -> bool:
        """Whether the guest has confirmed the process on this connection."""
        return self._is_joined

    @property
    def has_room(self) -> bool:
        """Whether more input may be queued; if not, the caller waits until some was taken."""
        return len(self._pending) < MOST_BYTES

    def fileno(self) -> int:
        """Return the connection's descriptor, for `poll`; -1 if there is none."""
        return -1 if self._connection is None else self._connection.fileno()

    def connect(self, path: str) -> bool:
        """Connect to *path* and request the process; return whether that was possible."""
        self.disconnect()
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            return False
        connection.settimeout(None)
        self._connection, self._frames = connection, FrameReader()
        self.ask("process_join", has=self.has)
        return self._connection is not None

    def disconnect(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._is_joined, self._is_under_way, self._is_close_sent = None, False, False, False

    def ask(self, what: str, **words: Any) -> None:
        """Send a request, if connected; its answer is not awaited."""
        if self._connection is None:
            return
        try:
            self._connection.sendall(pack_request({"id": what, "type": what, "run": self.run, **words}))
        except OSError:
            self.disconnect()

    def write(self, data: bytes) -> None:
        """Send *data* to the process, now or when it can take it."""
        self._pending += data
        self._send_pending()

    def close(self) -> None:
        """Close its stdin after the queued input."""
        self._is_closed = True
        self._send_pending()

    def read(self) -> None:
        """Read and handle data from the connection; called when there is some.

        Raises:
            NoSuchRunError: if the guest does not know the process.
        """
        assert self._connection is not None
        try:
            data = self._connection.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.disconnect()
            return
        try:
            frames = self._frames.feed(data)
        except FrameTooLargeError:
            self.disconnect()
            return
        for frame in frames:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                self._handle_frame(msgspec.json.decode(frame, type=StreamFrame))
            if self.fileno() < 0:  # the frame closed the connection
                return

    def _handle_frame(self, answer: StreamFrame) -> None:
        if answer.id == "process_join":
            if answer.type != "answer":
                raise NoSuchRunError(answer.stderr)
            self._is_joined = True
            self._record_taken(answer.taken)
        elif answer.id == "process_tell" and answer.type == "answer":
            self._record_taken(answer.taken)
        elif answer.type == "stream":
            self._receive_output(answer)
        elif answer.type == "rest":
            self._acknowledge(1)
        elif answer.type == "ended":
            self.code = answer.code

    def _receive_output(self, answer: StreamFrame) -> None:
        has = self.has.get(answer.name, 0)
        with contextlib.suppress(ValueError):
            data = base64.b64decode(answer.data, validate=True)[max(0, has - answer.at) :]
            if data:
                self.has[answer.name] = max(has, answer.at) + len(data)
                self._on_output(answer.name, data)
        self._acknowledge(HAS_BYTES)

    def _acknowledge(self, least: int) -> None:
        for name, has in self.has.items():
            if has - self._acknowledged.get(name, 0) >= least:
                self._acknowledged[name] = has
                self.ask("process_has", stream=name, to=has)

    def _record_taken(self, taken: int) -> None:
        self._is_under_way = False
        before = taken if self._taken is None else self._taken  # an earlier stdio proxy may have sent input
        del self._pending[: max(0, taken - before)]
        self._taken = max(taken, before)
        self._send_pending()

    def _send_pending(self) -> None:
        if self._connection is None or not self._is_joined or self._is_under_way:
            return
        if self._pending:
            self._is_under_way = True
            data = base64.b64encode(bytes(self._pending[:PIECE_BYTES])).decode("ascii")
            self.ask("process_tell", at=self._taken, data=data)
        elif self._is_closed and not self._is_close_sent:
            self._is_close_sent = True
            self.ask("process_close")
