"""What a program asks of the proxy: the head of one HTTP request, read strictly. Pure; the bytes are foreign.

What two readers could take for two different things (a body with two lengths, a header on two lines, a name before an
`@`) is refused, so that nobody behind the proxy reads another request than was judged here.
"""

import re
from typing import Final, NamedTuple

LONGEST: Final = 32 * 1024
"""Bytes of a head; more is refused."""
_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,16000}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.%]*\]|[^\s:@/\\?#\[\]]+)(?::([0-9]{1,5}))?")
_OF_ONE_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade", "host"}
)


class RequestHead(NamedTuple):
    """Whom a request is for, and what of it goes on."""

    method: str
    host: str
    port: int
    tunnel: bool
    """`CONNECT`: bytes both ways, once it is allowed."""
    onward: bytes = b""
    """The head as the host gets it; empty for a tunnel."""
    length: int = 0
    """So many bytes of a body follow."""


class UnsupportedRequestError(ValueError):
    """A request that is not passed on, with the answer's status."""

    def __init__(self, status: int, why: str) -> None:
        self.status, self.why = status, why
        super().__init__(why)


def read_head(data: bytes) -> RequestHead:
    """The request whose head, with the empty line at its end, is *data*.

    Raises:
        UnfitError: if it is none that a proxy passes on.
    """
    first, *lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise UnsupportedRequestError(400, "that is not a proxy request")
    method, target = line[1].decode(), line[2].decode()
    headers = [_header(each) for each in lines]
    if method == "CONNECT":
        host, port = _authority(target, None)
        return RequestHead(method, host, port, True)
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise UnsupportedRequestError(400, "a proxy requires the whole URL, http://HOST/...; use CONNECT for https")
    end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    host, port = _authority(rest[:end], 80)
    path = rest[end:].partition("#")[0]
    return RequestHead(method, host, port, False, _onward(method, path, rest[:end], headers), _length(headers))


def _authority(text: str, default: int | None) -> tuple[str, int]:
    parts = _AUTHORITY.fullmatch(text)
    port = int(parts[2]) if parts and parts[2] else default
    if parts is None or port is None or not 0 < port < 65536:
        raise UnsupportedRequestError(400, "that is not HOST:PORT")
    return parts[1], port


def _header(line: bytes) -> tuple[str, bytes]:
    header = _HEADER.fullmatch(line)
    if header is None:
        raise UnsupportedRequestError(400, "an invalid header")
    return header[1].decode().lower(), header[2]


def _length(headers: list[tuple[str, bytes]]) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        raise UnsupportedRequestError(411, "a body requires a Content-Length here")
    lengths = [value for name, value in headers if name == "content-length"]
    if len(lengths) > 1 or not all(value.isdigit() and len(value) < 16 for value in lengths):
        raise UnsupportedRequestError(400, "a body of unclear length")
    return int(lengths[0]) if lengths else 0


def _onward(method: str, path: str, authority: str, headers: list[tuple[str, bytes]]) -> bytes:
    """The head for the host: its own name in it, nothing that was meant for us, and no second request behind it."""
    named = b",".join(value for name, value in headers if name == "connection").decode("latin-1").lower()
    ours = _OF_ONE_HOP | {word.strip() for word in named.split(",")}
    ours -= {"content-length"}  # without it a body would be a request
    lines = [
        f"{method} {path if path.startswith('/') else '/' + path} HTTP/1.1".encode(),
        b"Host: " + authority.encode(),
    ]
    lines += [name.encode() + b": " + value for name, value in headers if name not in ours]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
