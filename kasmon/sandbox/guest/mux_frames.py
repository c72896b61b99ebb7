"""What goes over a sandbox's one line: records of a kind, for a connection, with so many bytes."""

import json
import struct

HEAD = struct.Struct(">BII")
OPEN, DATA, CLOSE, ASK, SAID, PIECE = range(1, 7)
"""A connection to the agent comes, speaks, goes; the door asks, the machine says; bytes of the file named before."""
CALL, THERE, SAYS, TOOK, ENDS, DROP = range(7, 13)
"""Of `ways`: a connection is wanted, is there, speaks, was listened to, will say no more, is over with its reason."""
PIECE_BYTES = 1 << 16
MOST_BYTES = 1 << 22


class WrongRecordError(ValueError):
    """What came is no record; nothing behind it can be read."""


def packed(kind: int, channel: int, content: bytes = b"") -> bytes:
    return HEAD.pack(kind, channel, len(content)) + content


def told(kind: int, words: dict[str, object]) -> bytes:
    """*words* as a record."""
    return packed(kind, 0, json.dumps(words).encode("ascii"))


class MuxRecordReader:
    """Cuts what comes into records."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """The records, each as kind, connection and content, that are whole with *data*.

        Raises:
            WrongRecordError: if it is none.
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
        self._held = bytearray(held[at:])  # what was given away is not held on to
        return whole
