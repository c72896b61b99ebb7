"""Strict parser of the head of an HTTP request to the proxy. Pure; the input is untrusted.

A request that two parsers could read differently (a body with two lengths, a header on two lines, a name before an `@`)
is refused, so that no server behind the proxy sees another request than was checked here.
"""

import re
from typing import Final, NamedTuple

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
    """The length of its body in bytes."""


class UnsupportedRequestError(ValueError):
    """A request that the proxy refuses, with the HTTP status of the response."""

    def __init__(self, status: int, why: str) -> None:
        self.status, self.why = status, why
        super().__init__(why)


def read_head(data: bytes) -> RequestHead:
    """Parse *data*, the head of a request including the empty line at its end.

    Raises:
        UnsupportedRequestError: if the proxy does not pass such a request on.
    """
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
