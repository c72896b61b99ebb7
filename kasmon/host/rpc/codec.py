"""Frames and errors as bytes: each frame is a 4-byte big-endian length and one MessagePack value. Sans-IO."""

import struct
from collections.abc import Callable, Iterator

import msgspec

from kasmon.errors import KasmonError, UsageError, of_system
from kasmon.host.rpc.frames import ExecuteCommand, FailureReply, Frame, FromClient, FromHost
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
    import json  # only here: inputs are rarely edited

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
            import json  # likewise

            edited = json.dumps(frame.command.input).encode()
            answer = msgspec.structs.replace(frame.command, input=None)
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
        """Yield each complete body. Raises `WireError` if a frame's length exceeds `FRAME_BYTES`."""
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


CARRIED = (str, int, float, bool, type(None))
"""The field types that are sent unchanged; a tuple of strings is too."""


def failed(n: int, error: KasmonError | OSError) -> FailureReply:
    """Return *error* as the answer to frame *n*, without the secrets that this host knows."""
    if isinstance(error, OSError):
        error = of_system(error)
    from kasmon.host.journal.known_secrets import hidden  # a host has loaded it; its clients need not

    fields = {
        name: _redact_value(value)
        for name, value in vars(error).items()
        if name not in ("message", "hint") and (isinstance(value, CARRIED) or _is_strings(value))
    }
    return FailureReply(
        n=n,
        error=error.code,
        exit_code=error.exit_code,
        message=hidden(error.message),
        hint=hidden(error.hint),
        kind=type(error).__name__,
        fields=fields,
    )


def rebuilt(frame: FailureReply) -> KasmonError:
    """Return the error in *frame*: of the same class, with the same message, hint and fields.

    A class unknown to this version becomes the most general one with its code, else with its exit code.
    """
    known = list(_tree(KasmonError))
    fits: tuple[Callable[[type[KasmonError]], bool], ...] = (
        lambda kind: kind.__name__ == frame.kind and kind.code == frame.error,
        lambda kind: kind.code == frame.error and kind.exit_code == frame.exit_code,
        lambda kind: kind.exit_code == frame.exit_code,
    )
    kind = next((kind for fit in fits for kind in known if fit(kind)), KasmonError)
    error = kind.__new__(kind)
    KasmonError.__init__(error, frame.message, hint=frame.hint)
    for name, value in frame.fields.items():
        if name.isidentifier() and not name.startswith("_") and name != "args":
            setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


def _tree(kind: type[KasmonError]) -> Iterator[type[KasmonError]]:
    """Yield *kind* and its subclasses, the general before the special."""
    level = [kind]
    while level:
        yield from level
        level = [below for above in level for below in above.__subclasses__()]


def _redact_value(value: object) -> object:
    from kasmon.host.journal.known_secrets import hidden

    if isinstance(value, tuple):
        return tuple(map(hidden, value))
    return hidden(value) if isinstance(value, str) else value


def _is_strings(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) for word in value)
