"""One connection from a sandbox to one host: read in time, opened by what is said in it, carried until both end."""

import contextlib
import select
import socket
import threading
import time
from typing import Final

from kasmon.sandbox.network.allowlist import HostVerdict
from kasmon.sandbox.network.http_request import LONGEST, RequestHead, UnsupportedRequestError, read_head
from kasmon.sandbox.network.tls_client_hello import LONGEST as LONGEST_HELLO
from kasmon.sandbox.network.tls_client_hello import TlsClientHello, read_hello

ASK_S: Final = 15.0
"""For a whole head, and for a whole hello: however slowly it is said."""
IDLE_S: Final = 900.0
"""A connection on which nobody says anything for so long is closed."""
PIECE: Final = 64 * 1024
TLS_PORT: Final = 443
WORDS: Final = {400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 411: "Length Required"} | {
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class HostUnreachedError(ValueError):
    """The host is allowed, and not there."""


class ProxyTunnel:
    """The two ends of a connection; `cut` may come from any thread and at any time."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.host: socket.socket | None = None
        self.verdict: HostVerdict | None = None
        """By which it is open; None before that."""
        self.heard_at = time.monotonic()
        self.was_cut = False

    def cut(self) -> None:
        """End it now, whoever waits in it."""
        self.was_cut = True
        for end in (self.client, self.host):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of both ends; for who serves it, once nobody carries any more."""
        for end in (self.client, self.host):
            if end is not None:
                end.close()


def read_request(client: socket.socket) -> tuple[RequestHead, bytes]:
    """The head of the request that comes, and what came behind it.

    Raises:
        UnfitError: if it is none, too long, or not there in `ASK_S`.
        OSError: if the program went away.
    """
    until = time.monotonic() + ASK_S
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > LONGEST:
            raise UnsupportedRequestError(431, f"a head of more than {LONGEST} bytes")
        if not (piece := _heard(client, until)):
            raise UnsupportedRequestError(400, "half a request")
        data += piece
    if end > LONGEST:
        raise UnsupportedRequestError(431, f"a head of more than {LONGEST} bytes")
    return read_head(bytes(data[: end + 4])), bytes(data[end + 4 :])


def _heard(client: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise UnsupportedRequestError(408, "the request was not received in time")
    client.settimeout(left)
    try:
        return client.recv(PIECE)
    except TimeoutError as error:
        raise UnsupportedRequestError(408, "the request was not received in time") from error


def until_hello(passage: ProxyTunnel, verdict: HostVerdict) -> tuple[bytes, str]:
    """What the program says first in the tunnel, and why it is not passed on; an empty reason where it is.

    Raises:
        OSError: if one of the two went away.
        UnfitError: if nothing comes.
    """
    assert passage.host is not None
    free = verdict.listed and verdict.port != TLS_PORT
    until = time.monotonic() + ASK_S
    if free:  # who serves may speak first: then it is no TLS
        ready, _, _ = select.select([passage.client, passage.host], [], [], ASK_S)
        if passage.client not in ready:
            return b"", ""
    said = bytearray()
    while True:
        if not (piece := _heard(passage.client, until)):
            return b"", "" if free or not said else "a tunnel that ended in its hello"
        said += piece
        try:
            hello = read_hello(bytes(said))
        except ValueError as error:
            return bytes(said), "" if free and said[0] != 22 else f"a tunnel to {verdict.host} that is not TLS: {error}"
        if hello is not None:
            return bytes(said), _fault(hello, verdict)
        if len(said) > LONGEST_HELLO:
            return bytes(said), f"a tunnel to {verdict.host} with an endless hello"


def _fault(hello: TlsClientHello, verdict: HostVerdict) -> str:
    if not hello.name:
        return f"a tunnel to {verdict.host} that names no host in its TLS hello"
    if hello.name != verdict.host:
        return f"a tunnel to {verdict.host} whose TLS hello names another host"
    if hello.encrypted:
        return f"a tunnel to {verdict.host} whose TLS hello is encrypted, so its host name is unknown"
    return ""


def carry(passage: ProxyTunnel, onward: int | None = None) -> None:
    """Carry bytes both ways until both sides are done or silent; of the program's, *onward* at most (None: all)."""
    host = passage.host
    assert host is not None
    for end in (passage.client, host):
        end.settimeout(IDLE_S)
    back = threading.Thread(target=_pump, args=(passage, host, passage.client, None), daemon=True)
    back.start()
    if onward is None:
        _pump(passage, passage.client, host, None)
    elif onward:
        _pump(passage, passage.client, host, onward)
    back.join()


def _pump(passage: ProxyTunnel, here: socket.socket, there: socket.socket, left: int | None) -> None:
    """Carry what *here* says to *there*; with *left* so many bytes, and then no end is told."""
    whole = left is None
    try:
        while left is None or left > 0:
            try:
                piece = here.recv(PIECE if left is None else min(PIECE, left))
            except TimeoutError:
                if time.monotonic() - passage.heard_at < IDLE_S:
                    continue
                raise
            if not piece:
                break
            passage.heard_at = time.monotonic()
            there.sendall(piece)
            left = None if left is None else left - len(piece)
        if whole:
            there.shutdown(socket.SHUT_WR)
    except OSError:
        passage.cut()


def answer(client: socket.socket, status: int, sentence: str) -> None:
    """Tell the program *sentence*, in the status line too: of a refused tunnel most programs show nothing else."""
    plain = sentence.encode("ascii", "replace").decode()
    line = f"{WORDS[status]}: {plain}" if status != 403 else plain
    body = f"{sentence}\n".encode()
    head = f"HTTP/1.1 {status} {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        client.shutdown(socket.SHUT_WR)
