"""Framing of JSON messages on a stream: a length of four bytes, big-endian, and then a JSON object of that length."""

import json
import socket

LIMIT_BYTES = 16 * 1024 * 1024
_encode = json.JSONEncoder(separators=(",", ":")).encode  # bound here: code that patches `json` has no effect


class FrameTooLargeError(ValueError):
    """A frame longer than `LIMIT_BYTES`; nothing after it can be read."""


def packed(message: object, limit: int = LIMIT_BYTES) -> bytes:
    """Return *message* as a frame of at most *limit* bytes.

    Raises:
        FrameTooLargeError: if it does not fit into one.
    """
    data = _encode(message).encode("ascii")
    if len(data) > limit:
        raise FrameTooLargeError(f"frame too large: {len(data)} bytes, and {limit} are allowed")
    return len(data).to_bytes(4, "big") + data


class FrameReader:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete with *data*.

        Raises:
            FrameTooLargeError: once a longer one begins; the reader is unusable then.
        """
        held, whole, at = self._held, list[bytes](), 0
        held += data
        while len(held) - at >= 4:
            length = int.from_bytes(held[at : at + 4], "big")
            if length > LIMIT_BYTES:
                raise FrameTooLargeError(f"frame too large: {length} bytes, and {LIMIT_BYTES} are allowed")
            if len(held) - at - 4 < length:
                break
            whole.append(bytes(held[at + 4 : at + 4 + length]))
            at += 4 + length
        self._held = bytearray(memoryview(held)[at:])  # a new object: holds no returned data
        return whole


def received(stream: socket.socket) -> bytes | None:
    """Read the next frame of a blocking *stream*; None at its end."""
    head = _exactly(stream, 4)
    return None if head is None else _exactly(stream, int.from_bytes(head, "big"))


def _exactly(stream: socket.socket, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = stream.recv(min(length - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
