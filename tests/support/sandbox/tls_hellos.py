"""What a TLS client says first, made by hand or by the standard library."""

import contextlib
import ssl


def hello(name: str | None) -> bytes:
    """The first bytes of a true client that wants *name*."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def made(*extensions: tuple[int, bytes]) -> bytes:
    """A hello with just these extensions."""
    extensions_bytes = b"".join(
        kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body for kind, body in extensions
    )
    body = (
        b"\x03\x03"
        + bytes(32)
        + b"\0"
        + b"\0\x02\x13\x01"
        + b"\x01\0"
        + len(extensions_bytes).to_bytes(2, "big")
        + extensions_bytes
    )
    return record(b"\x01" + len(body).to_bytes(3, "big") + body)


def record(content: bytes) -> bytes:
    return b"\x16\x03\x01" + len(content).to_bytes(2, "big") + content


def naming(name: bytes) -> tuple[int, bytes]:
    """The extension that names a host."""
    entry = b"\0" + len(name).to_bytes(2, "big") + name
    return 0, len(entry).to_bytes(2, "big") + entry
