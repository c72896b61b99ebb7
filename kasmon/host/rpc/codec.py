"""Frames as bytes: each a 4-byte big-endian length and one MessagePack value. Sans-IO."""

import json
import struct
from collections.abc import Iterator

import msgspec

from kasmon.errors import UsageError
from kasmon.host.rpc.frames import ExecuteCommand, Frame, FromClient, FromHost
from kasmon.model.commands import Answer

FRAME_BYTES = 16 * 1024 * 1024
"""The longest frame either side accepts."""

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
from_host: msgspec.msgpack.Decoder[FromHost] = msgspec.msgpack.Decoder(FromHost)


class WireError(Exception):
    """The other side sent an invalid frame; the connection cannot be used any more."""


def decode_client_frame(body: bytes) -> FromClient:
    """Return the frame of a client in *body*.

    Raises:
        msgspec.DecodeError: if it is no client frame.
    """
    frame = _from_client.decode(body)
    if not (isinstance(frame, ExecuteCommand) and isinstance(frame.command, Answer) and frame.edited):
        return frame
    try:
        command = msgspec.structs.replace(frame.command, input=json.loads(frame.edited))
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"the changed input cannot be read: {error}") from error
    return msgspec.structs.replace(frame, command=command, edited=b"")


def pack(frame: Frame) -> bytes:
    """Return *frame* as bytes, its length in front.

    Raises:
        UsageError: if its content cannot be sent: it is too long or too deep, or holds half of a character.
    """
    name = type(frame).__struct_config__.tag
    try:
        if isinstance(frame, ExecuteCommand) and isinstance(frame.command, Answer) and frame.command.input is not None:
            edited, answer = (
                json.dumps(frame.command.input).encode(),
                msgspec.structs.replace(frame.command, input=None),
            )
            frame = msgspec.structs.replace(frame, command=answer, edited=edited)
        body = _encoder.encode(frame)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object[error.start : error.end]!r} in {name!r} cannot be sent: it is not UTF-8."
        ) from error
    except (OverflowError, RecursionError, ValueError) as error:
        raise UsageError(f"{name!r} cannot be sent: {error}.") from error
    if len(body) > FRAME_BYTES:
        raise UsageError(f"{name!r} cannot be sent: it has {len(body)} bytes (maximum {FRAME_BYTES}).")
    return struct.pack(">I", len(body)) + body


class Unpacker:
    """Bytes in, frame bodies out; retains incomplete frames. Sans-IO."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete body.

        Raises:
            WireError: if a frame's length exceeds `FRAME_BYTES`.
        """
        self._pending += data
        while len(self._pending) >= 4:
            (length,) = struct.unpack_from(">I", self._pending)
            if length > FRAME_BYTES:
                raise WireError(f"a frame of {length} bytes")
            if len(self._pending) < 4 + length:
                return
            body = bytes(self._pending[4 : 4 + length])
            del self._pending[: 4 + length]
            yield body
