"""Records on a sandbox's single stream: each has a kind, a connection number and its content."""

import json
import struct

HEAD = struct.Struct(">BII")
OPEN, DATA, CLOSE, ASK, SAID, PIECE = range(1, 7)
"""A guest client's connection opens, sends, closes; request of the VM's host end, the guest's answer; file content."""
CALL, THERE, SAYS, TOOK, ENDS, DROP = range(7, 13)
"""Of `mux`: a connection is requested, is open, sends, acknowledges, reached EOF, is closed with a reason."""
PIECE_BYTES = 1 << 16
MOST_BYTES = 1 << 22


class WrongRecordError(ValueError):
    """The data is no record; nothing after it can be read."""


def packed(kind: int, channel: int, content: bytes = b"") -> bytes:
    return HEAD.pack(kind, channel, len(content)) + content


def told(kind: int, words: dict[str, object]) -> bytes:
    """Return *words* as a JSON record."""
    return packed(kind, 0, json.dumps(words).encode("ascii"))


class MuxRecordReader:
    """Splits received bytes into records."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Return the records that are complete with *data*, each as kind, connection and content.

        Raises:
            WrongRecordError: if the data is no record.
        """
        held, at, whole = self._held, 0, list[tuple[int, int, bytes]]()
        held += data
        while len(held) - at >= HEAD.size:
            kind, channel, length = HEAD.unpack_from(held, at)
            if not OPEN <= kind <= DROP or length > MOST_BYTES:
                raise WrongRecordError(f"a record of kind {kind} and {length} bytes")
            if len(held) - at - HEAD.size < length:
                break
            at += HEAD.size
            whole.append((kind, channel, bytes(held[at : at + length])))
            at += length
        self._held = bytearray(held[at:])  # a new object: holds no returned data
        return whole
