"""What a program may ask of the proxy, and what goes on of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.sandbox.network.tunnel import RequestHead, UnsupportedRequestError, read_head


def ask(*lines: str) -> RequestHead:
    return read_head("\r\n".join([*lines, "", ""]).encode("latin-1"))


def test_a_tunnel_is_for_the_host_that_it_names() -> None:
    assert RequestHead("CONNECT", "example.org", 443, True) == ask(
        "CONNECT example.org:443 HTTP/1.1", "Host: other.example:443"
    )


def test_a_request_is_forwarded_with_the_name_of_its_host_and_alone() -> None:
    head = ask(
        "GET http://example.org/a?b#c HTTP/1.1",
        "Host: other.example",
        "Proxy-Authorization: Basic x",
        "Connection: keep-alive, X-Hop",
        "X-Hop: 1",
        "Upgrade: websocket",
        "Accept: */*",
    )

    assert b"GET /a?b HTTP/1.1\r\nHost: example.org\r\naccept: */*\r\nConnection: close\r\n\r\n" == head.onward
    assert ("example.org", 80, 0) == (head.host, head.port, head.length)


def test_its_port_and_its_body_are_its_own_and_no_header_makes_a_request_of_its_body() -> None:
    head = ask("POST http://example.org:8080 HTTP/1.1", "Content-Length: 12")
    assert (8080, 12) == (head.port, head.length)
    assert head.onward.startswith(b"POST / HTTP/1.1\r\nHost: example.org:8080\r\ncontent-length: 12\r\n")

    head = ask("POST http://example.org/ HTTP/1.1", "Connection: content-length", "Content-Length: 12")
    assert b"content-length: 12" in head.onward


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (400, ["GET / HTTP/1.1"]),
        (400, ["GET https://example.org/ HTTP/1.1"]),
        (400, ["GET ftp://example.org/ HTTP/1.1"]),
        (400, ["GET http://user@example.org/ HTTP/1.1"]),
        (400, ["GET http://example.org\\@other.example/ HTTP/1.1"]),
        (400, ["GET http://example.org:99999/ HTTP/1.1"]),
        (400, ["GET http:// HTTP/1.1"]),
        (400, ["CONNECT example.org HTTP/1.1"]),
        (400, ["CONNECT example.org:443:443 HTTP/1.1"]),
        (400, ["CONNECT example.org:0 HTTP/1.1"]),
        (400, ["GET http://example.org/ HTTP/2"]),
        (400, ["get http://example.org/ HTTP/1.1"]),
        (400, ["GET  http://example.org/ HTTP/1.1"]),
        (400, ["GET http://example.org/ HTTP/1.1", " folded: 1"]),
        (400, ["GET http://example.org/ HTTP/1.1", "Name : 1"]),
        (400, ["GET http://example.org/ HTTP/1.1", "A: b\nHost: other.example"]),
        (400, ["GET http://example.org/ HTTP/1.1", "A: b\rHost: other.example"]),
        (400, ["POST http://example.org/ HTTP/1.1", "Content-Length: 1", "Content-Length: 2"]),
        (400, ["POST http://example.org/ HTTP/1.1", "Content-Length: +1"]),
        (400, ["POST http://example.org/ HTTP/1.1", "Content-Length: 1, 2"]),
        (411, ["POST http://example.org/ HTTP/1.1", "Transfer-Encoding: chunked"]),
        (411, ["POST http://example.org/ HTTP/1.1", "Content-Length: 1", "transfer-encoding: x"]),
    ],
)
def test_an_ambiguous_request_is_not_forwarded(status: int, lines: list[str]) -> None:
    with pytest.raises(UnsupportedRequestError) as refused:
        ask(*lines)

    assert status == refused.value.status


@given(st.binary(max_size=200))
def test_no_request_breaks_it(asked: bytes) -> None:
    try:
        head = read_head(asked + b"\r\n\r\n")
    except UnsupportedRequestError:
        return
    assert head.tunnel or head.onward.count(b"\r\n\r\n") == 1
