"""One client connection: receives and sends frames. A client that does not read blocks nothing; it is dropped."""

import json
import re
import socket
from collections.abc import Callable

from kasmon.sandbox.guest.event_loop import READABLE, WRITABLE, EventLoop
from kasmon.sandbox.guest.frames import FrameReader, FrameTooLargeError, pack_json

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

JsonObject = dict[str, object]


class InvalidRequestError(ValueError):
    """The request is invalid."""


def number(message: JsonObject, key: str, default: float, most: float) -> float:
    """Return the number *key*, from 0 to *most*; *default* where it is absent."""
    value = message.get(key, default)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidRequestError(f"{key!r} is a number from 0 to {most:g}")
    return value


def variables_of(message: JsonObject) -> dict[str, str]:
    """Return the variables of a request; none where they are absent."""
    variables = message.get("variables") or {}
    if not isinstance(variables, dict):
        raise InvalidRequestError("'variables' are names and texts")
    for variable, value in variables.items():
        if not VARIABLE.fullmatch(variable) or not isinstance(value, str) or "\0" in value:
            raise InvalidRequestError(
                f"{variable!r} is not a valid variable name, or its value is not text without NUL"
            )
    return variables


def texts(message: JsonObject, key: str) -> list[str]:
    """Return the list of texts *key*; empty where it is absent."""
    value = message.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidRequestError(f"{key!r} are texts")
    return value


BLOCK_BYTES = 1 << 18
LIVE_BYTES = 1 << 18
"""With more unread bytes than this, live output is dropped; the answer contains it."""
MOST_BYTES = 64 * 1024 * 1024
"""With more unread bytes than this, the client is disconnected."""


class GuestConnection:
    """A client; *receive* gets each request, *left* is called once when it has disconnected."""

    def __init__(
        self,
        loop: EventLoop,
        stream: socket.socket,
        receive: Callable[["GuestConnection", dict[str, object]], None],
        left: Callable[["GuestConnection"], object],
    ) -> None:
        self._loop, self._stream, self._receive, self._left = loop, stream, receive, left
        self._frames, self._out = FrameReader(), bytearray()
        self._open = True
        stream.setblocking(False)
        loop.watch(stream.fileno(), self._handle_ready)

    def send(self, message: dict[str, object]) -> None:
        """Send *message*, or buffer it until the client reads."""
        if not self._open:
            return
        try:
            data = pack_json(message)
        except FrameTooLargeError as error:
            data = pack_json({"id": message.get("id"), "stdout": "", "stderr": str(error), "exit_code": 1})
        self._out += data
        self._flush()
        if len(self._out) > MOST_BYTES:
            self._close()

    def send_live(self, message: dict[str, object]) -> bool:
        """Send *message*, unless the client is behind; return whether it was sent."""
        if len(self._out) > LIVE_BYTES:
            return False
        self.send(message)
        return True

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._stream.send(memoryview(self._out)[:BLOCK_BYTES].tobytes())]
        except BlockingIOError:
            self._loop.watch(self._stream.fileno(), self._handle_ready, READABLE | WRITABLE)
        except OSError:
            self._close()
        else:
            self._loop.watch(self._stream.fileno(), self._handle_ready)

    def _handle_ready(self) -> None:
        if self._out:
            self._flush()
        if not self._open:
            return
        try:
            data = self._stream.recv(BLOCK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        try:
            frames = self._frames.feed(data)
        except FrameTooLargeError as error:
            self.send({"stdout": "", "stderr": str(error), "exit_code": 1})
            self._close()
            return
        for frame in frames:
            self._process(frame)

    def _process(self, frame: bytes) -> None:
        try:
            message = json.loads(frame)
            if not isinstance(message, dict):
                raise ValueError("a request must be a JSON object")
        except (ValueError, RecursionError) as error:
            self.send({"stdout": "", "stderr": str(error), "exit_code": 1})
        else:
            self._receive(self, message)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._loop.forget(self._stream.fileno())
            self._stream.close()
            self._left(self)
