"""One connection from a sandbox to a host: its request is read with a timeout, then bytes are carried both ways.

A request that two parsers could read differently (a body with two lengths, a header on two lines, a name before an `@`)
is refused, so that no server behind the proxy sees another request than was checked here.
"""

import contextlib
import re
import select
import socket
import threading
import time
from typing import Final, NamedTuple

from kasmon.sandbox.network.allowlist import HostVerdict

LONGEST: Final = 32 * 1024
"""Maximum bytes of a head; more is refused."""
_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,16000}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^\s:@/\\?#\[\]]+)(?::([0-9]{1,5}))?")
_OF_ONE_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "host"}
)


class RequestHead(NamedTuple):
    """The target of a request, and the part of its head that is passed on."""

    method: str
    host: str
    port: int
    tunnel: bool
    """Whether it is `CONNECT`: bytes in both directions, once allowed."""
    onward: bytes = b""
    """The head as sent to the host; empty for a tunnel."""
    length: int = 0


class UnsupportedRequestError(ValueError):
    """A request that the proxy refuses, with the HTTP status of the response."""

    def __init__(self, status: int, why: str) -> None:
        self.status, self.why = status, why
        super().__init__(why)


def read_head(data: bytes) -> RequestHead:
    """Parse *data*, a head with its empty line. Raises `UnsupportedRequestError` for what is not passed on."""
    first, *lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise UnsupportedRequestError(400, "that is not a proxy request")
    method, target = line[1].decode(), line[2].decode()
    headers = [_parse_header(each) for each in lines]
    if method == "CONNECT":
        host, port = _parse_authority(target, None)
        return RequestHead(method, host, port, True)
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise UnsupportedRequestError(400, "a proxy requires the whole URL, http://HOST/...; use CONNECT for https")
    end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    host, port = _parse_authority(rest[:end], 80)
    path = rest[end:].partition("#")[0]
    return RequestHead(
        method, host, port, False, _build_forwarded_head(method, path, rest[:end], headers), _parse_length(headers)
    )


def _parse_authority(text: str, default: int | None) -> tuple[str, int]:
    parts = _AUTHORITY.fullmatch(text)
    port = int(parts[2]) if parts and parts[2] else default
    if parts is None or port is None or not 0 < port < 65536:
        raise UnsupportedRequestError(400, "that is not HOST:PORT")
    return parts[1], port


def _parse_header(line: bytes) -> tuple[str, bytes]:
    header = _HEADER.fullmatch(line)
    if header is None:
        raise UnsupportedRequestError(400, "an invalid header")
    return header[1].decode().lower(), header[2]


def _parse_length(headers: list[tuple[str, bytes]]) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        raise UnsupportedRequestError(411, "a body requires a Content-Length here")
    lengths = [value for name, value in headers if name == "content-length"]
    if len(lengths) > 1 or not all(value.isdigit() and len(value) < 16 for value in lengths):
        raise UnsupportedRequestError(400, "a body of unclear length")
    return int(lengths[0]) if lengths else 0


def _build_forwarded_head(method: str, path: str, authority: str, headers: list[tuple[str, bytes]]) -> bytes:
    """Return the head for the host, with its own `Host`, without hop-by-hop headers, and for one request only."""
    named = b",".join(value for name, value in headers if name == "connection").decode("latin-1").lower()
    ours = _OF_ONE_HOP | {word.strip() for word in named.split(",")}
    ours -= {"content-length"}  # without it the body would be read as a request
    lines = [
        f"{method} {path if path.startswith('/') else '/' + path} HTTP/1.1".encode(),
        b"Host: " + authority.encode(),
    ]
    lines += [name.encode() + b": " + value for name, value in headers if name not in ours]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


LONGEST_HELLO: Final = 32 * 1024
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
    """Parse *data*, a client's first bytes; None if more are needed. Raises `ValueError` if it is not TLS."""
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
            if whole > LONGEST_HELLO:
                raise ValueError("a hello that does not end")
            if len(received) >= whole:
                return _parse_hello(bytes(received[4:whole]))
    if (data and data[0] != HANDSHAKE) or len(data) > LONGEST_HELLO:
        raise ValueError("not a TLS handshake")
    return None


class _Reader:
    """Takes fields from the front of *data*; a missing one raises `ValueError`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read_bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("a truncated client hello")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.read_bytes(width), "big")

    def block(self, width: int) -> bytes:
        """Take a field that is prefixed by its length in *width* bytes."""
        return self.read_bytes(self.number(width))

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


def _parse_hello(body: bytes) -> TlsClientHello:
    reader = _Reader(body)
    reader.read_bytes(2 + 32)
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


ASK_S: Final = 15.0
"""Timeout for a whole request head, and for a whole hello, however slowly they arrive."""
IDLE_S: Final = 900.0
"""A connection without traffic for so long is closed."""
PIECE: Final = 64 * 1024
TLS_PORT: Final = 443
WORDS: Final = {400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 411: "Length Required"} | {
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class HostUnreachedError(ValueError):
    """The host is allowed but cannot be reached."""


class ProxyTunnel:
    """The two ends of a connection. `cut` is thread-safe."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.host: socket.socket | None = None
        self.verdict: HostVerdict | None = None
        """The verdict that allowed it; None before that."""
        self.last_traffic_at = time.monotonic()
        self.was_cut = False

    def cut(self) -> None:
        """End it now; waiting threads return."""
        self.was_cut = True
        for end in (self.client, self.host):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both ends; called by the serving thread once no data is carried."""
        for end in (self.client, self.host):
            if end is not None:
                end.close()


def read_request(client: socket.socket) -> tuple[RequestHead, bytes]:
    """Return the head of the incoming request, and the bytes received after it.

    Raises:
        UnsupportedRequestError: if it is invalid, too long, or incomplete after `ASK_S`.
        OSError: if the program disconnected.
    """
    until = time.monotonic() + ASK_S
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > LONGEST:
            raise UnsupportedRequestError(431, f"a head of more than {LONGEST} bytes")
        if not (piece := _receive(client, until)):
            raise UnsupportedRequestError(400, "half a request")
        data += piece
    if end > LONGEST:
        raise UnsupportedRequestError(431, f"a head of more than {LONGEST} bytes")
    return read_head(bytes(data[: end + 4])), bytes(data[end + 4 :])


def _receive(client: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise UnsupportedRequestError(408, "the request was not received in time")
    client.settimeout(left)
    try:
        return client.recv(PIECE)
    except TimeoutError as error:
        raise UnsupportedRequestError(408, "the request was not received in time") from error


def read_until_hello(tunnel: ProxyTunnel, verdict: HostVerdict) -> tuple[bytes, str]:
    """Return the tunnel's first bytes from the program, and why they are refused; an empty reason if they are not.

    Raises:
        OSError: if either side disconnected.
        UnsupportedRequestError: if nothing arrives.
    """
    assert tunnel.host is not None
    free = verdict.listed and verdict.port != TLS_PORT
    until = time.monotonic() + ASK_S
    if free:  # the server may send first: then it is not TLS
        ready, _, _ = select.select([tunnel.client, tunnel.host], [], [], ASK_S)
        if tunnel.client not in ready:
            return b"", ""
    received = bytearray()
    while True:
        if not (piece := _receive(tunnel.client, until)):
            return b"", "" if free or not received else "a tunnel that ended in its hello"
        received += piece
        try:
            hello = read_hello(bytes(received))
        except ValueError as error:
            return bytes(received), "" if free and received[
                0
            ] != 22 else f"a tunnel to {verdict.host} that is not TLS: {error}"
        if hello is not None:
            return bytes(received), _find_fault(hello, verdict)
        if len(received) > LONGEST_HELLO:
            return bytes(received), f"a tunnel to {verdict.host} with an endless hello"


def _find_fault(hello: TlsClientHello, verdict: HostVerdict) -> str:
    if not hello.name:
        return f"a tunnel to {verdict.host} that names no host in its TLS hello"
    if hello.name != verdict.host:
        return f"a tunnel to {verdict.host} whose TLS hello names another host"
    if hello.encrypted:
        return f"a tunnel to {verdict.host} whose TLS hello is encrypted, so its host name is unknown"
    return ""


def forward(tunnel: ProxyTunnel, onward: int | None = None) -> None:
    """Carry bytes both ways until both sides end or are idle; at most *onward* of the program's (None: all)."""
    host = tunnel.host
    assert host is not None
    for end in (tunnel.client, host):
        end.settimeout(IDLE_S)
    back = threading.Thread(target=_pump, args=(tunnel, host, tunnel.client, None), daemon=True)
    back.start()
    if onward != 0:
        _pump(tunnel, tunnel.client, host, onward)
    back.join()


def _pump(tunnel: ProxyTunnel, source: socket.socket, target: socket.socket, left: int | None) -> None:
    """Carry bytes from *source* to *target*; with *left*, only that many, and without closing *target* for writing."""
    whole = left is None
    try:
        while left is None or left > 0:
            try:
                piece = source.recv(PIECE if left is None else min(PIECE, left))
            except TimeoutError:
                if time.monotonic() - tunnel.last_traffic_at < IDLE_S:
                    continue
                raise
            if not piece:
                break
            tunnel.last_traffic_at = time.monotonic()
            target.sendall(piece)
            left = None if left is None else left - len(piece)
        if whole:
            target.shutdown(socket.SHUT_WR)
    except OSError:
        tunnel.cut()


def send_response(client: socket.socket, status: int, sentence: str) -> None:
    """Send *sentence* to the program, in the status line too: most programs show nothing else of a refused tunnel."""
    plain = sentence.encode("ascii", "replace").decode()
    line = f"{WORDS[status]}: {plain}" if status != 403 else plain
    body = f"{sentence}\n".encode()
    head = f"HTTP/1.1 {status} {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        client.shutdown(socket.SHUT_WR)
