"""Parser for the server name in a TLS client hello. Pure; the input is untrusted."""

from typing import Final, NamedTuple

LONGEST: Final = 32 * 1024
"""Maximum bytes of a hello; a longer one is refused."""
HANDSHAKE: Final = 22
CLIENT_HELLO: Final = 1
SERVER_NAME: Final = 0
ENCRYPTED: Final = 0xFE0D
"""The extension that contains an encrypted inner hello."""


class TlsClientHello(NamedTuple):
    name: str
    """The requested server name; empty if there is none."""
    encrypted: bool
    """Whether it contains an inner hello that cannot be read here."""


def read_hello(data: bytes) -> TlsClientHello | None:
    """Parse *data*, the first bytes of a client; None if more are needed.

    Raises:
        ValueError: if it is not TLS, or invalid.
    """
    received = bytearray()
    at = 0
    while at + 5 <= len(data):
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != HANDSHAKE or data[at + 1] != 3 or not 0 < length <= 16384:
            raise ValueError("not a TLS handshake")
        received += data[at + 5 : at + 5 + length]
        at += 5 + length
        if len(received) >= 4:
            if received[0] != CLIENT_HELLO:
                raise ValueError("not a client hello")
            whole = 4 + int.from_bytes(received[1:4], "big")
            if whole > LONGEST:
                raise ValueError("a hello that does not end")
            if len(received) >= whole:
                return _parse_hello(bytes(received[4:whole]))
    if (data and data[0] != HANDSHAKE) or len(data) > LONGEST:
        raise ValueError("not a TLS handshake")
    return None


class _Reader:
    """Takes fields from the front of *data*; a missing one raises `ValueError`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("a truncated client hello")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def block(self, width: int) -> bytes:
        """Take a field that is prefixed by its length in *width* bytes."""
        return self.take(self.number(width))

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


def _parse_hello(body: bytes) -> TlsClientHello:
    reader = _Reader(body)
    reader.take(2 + 32)
    reader.block(1)
    reader.block(2)
    reader.block(1)
    extensions = _Reader(reader.block(2) if reader.more else b"")
    if reader.more:
        raise ValueError("a client hello with trailing data")
    received: dict[int, bytes] = {}
    while extensions.more:
        kind = extensions.number(2)
        if kind in received:
            raise ValueError("a client hello with a duplicate extension")
        received[kind] = extensions.block(2)
    name = _parse_server_name(received[SERVER_NAME]) if SERVER_NAME in received else ""
    return TlsClientHello(name, ENCRYPTED in received)


def _parse_server_name(field: bytes) -> str:
    outer = _Reader(field)
    names = _Reader(outer.block(2))
    kind, name = names.number(1), names.block(2)
    if outer.more or names.more or kind != 0:
        raise ValueError("a hello with more than one name")
    return name.decode("ascii").lower().removesuffix(".")
