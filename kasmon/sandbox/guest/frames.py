"""Framing of every stream between host and guest: a length of four bytes, big-endian, then the content of that length.

The content is a JSON object, or a record of `mux`. A transport that carries only text carries the stream as lines of
base64.
"""

import base64
import json

LIMIT_BYTES = 16 * 1024 * 1024
_encode = json.JSONEncoder(separators=(",", ":")).encode  # bound here: code that patches `json` has no effect


class FrameTooLargeError(ValueError):
    """A frame longer than the limit; nothing after it can be read."""


def pack(content: bytes, limit: int = LIMIT_BYTES) -> bytes:
    """Return *content*, of at most *limit* bytes, as a frame. Raises `FrameTooLargeError` if it is longer."""
    if len(content) > limit:
        raise FrameTooLargeError(f"frame too large: {len(content)} bytes, and {limit} are allowed")
    return len(content).to_bytes(4, "big") + content


def pack_json(message: object, limit: int = LIMIT_BYTES) -> bytes:
    """Return *message* as JSON in a frame; raises as `pack`."""
    return pack(_encode(message).encode("ascii"), limit)


class FrameReader:
    """Splits received bytes into frames of at most *limit* bytes."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit, self._held = limit, bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the content of each frame that is complete with *data*.

        Raises:
            FrameTooLargeError: once a longer one begins; the reader is unusable then.
        """
        held, whole, at = self._held, list[bytes](), 0
        held += data
        while len(held) - at >= 4:
            length = int.from_bytes(held[at : at + 4], "big")
            if length > self._limit:
                raise FrameTooLargeError(f"frame too large: {length} bytes, and {self._limit} are allowed")
            if len(held) - at - 4 < length:
                break
            whole.append(bytes(held[at + 4 : at + 4 + length]))
            at += 4 + length
        if at:
            self._held = bytearray(memoryview(held)[at:])  # a new object: holds no returned data
        return whole


def encode_line(data: bytes) -> bytes:
    """Return *data* as a line of base64."""
    return base64.b64encode(data) + b"\n"


class LineReader:
    """Decodes lines of base64."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, text: bytes) -> list[bytes]:
        """Return the data of each line that is complete with *text*."""
        *lines, self._partial = (self._partial + text).split(b"\n")
        return [base64.b64decode(line) for line in lines]
