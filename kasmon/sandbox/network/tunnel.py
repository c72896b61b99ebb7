"""One connection from a sandbox to a host: its request is read with a timeout, then bytes are carried both ways."""

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


def carry(tunnel: ProxyTunnel, onward: int | None = None) -> None:
    """Carry bytes both ways until both sides end or are idle; at most *onward* of the program's (None: all)."""
    host = tunnel.host
    assert host is not None
    for end in (tunnel.client, host):
        end.settimeout(IDLE_S)
    back = threading.Thread(target=_pump, args=(tunnel, host, tunnel.client, None), daemon=True)
    back.start()
    if onward is None:
        _pump(tunnel, tunnel.client, host, None)
    elif onward:
        _pump(tunnel, tunnel.client, host, onward)
    back.join()


def _pump(tunnel: ProxyTunnel, here: socket.socket, there: socket.socket, left: int | None) -> None:
    """Carry bytes from *here* to *there*; with *left*, only that many, and without closing *there* for writing."""
    whole = left is None
    try:
        while left is None or left > 0:
            try:
                piece = here.recv(PIECE if left is None else min(PIECE, left))
            except TimeoutError:
                if time.monotonic() - tunnel.last_traffic_at < IDLE_S:
                    continue
                raise
            if not piece:
                break
            tunnel.last_traffic_at = time.monotonic()
            there.sendall(piece)
            left = None if left is None else left - len(piece)
        if whole:
            there.shutdown(socket.SHUT_WR)
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
