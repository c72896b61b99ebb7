"""Whom a TLS client wants to talk to, from the first thing that it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.sandbox.network.tunnel import ENCRYPTED, LONGEST_HELLO, TlsClientHello, read_hello
from tests.support.sandbox.tls_hellos import hello, made, naming, record


def test_a_true_client_names_its_host_or_nobody_in_any_pieces() -> None:
    assert TlsClientHello("example.org", False) == read_hello(hello("example.org"))
    assert TlsClientHello("", False) == read_hello(hello(None))

    said = hello("example.org")
    assert {None} == {read_hello(said[:length]) for length in range(len(said))}


def test_it_may_be_spread_over_records_and_one_that_hides_another_is_known() -> None:
    content = hello("example.org")[5:]
    spread = b"".join(record(content[at : at + 7]) for at in range(0, len(content), 7))
    assert TlsClientHello("example.org", False) == read_hello(spread)

    assert TlsClientHello("example.org", True) == read_hello(made(naming(b"Example.ORG"), (ENCRYPTED, b"\0" * 40)))


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x15\x03\x01\0\x02\x01\0",
        record(b"\x02\0\0\x01\0"),
        record(b"\x01\xff\xff\xff\0"),
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\xff\xff",
        made(naming(b"a.example"), naming(b"b.example")),
        made((0, naming(b"a.example")[1] + b"x")),
        made((0, b"\0\x02\0\0")),
        made((0, b"\0\x18" + 2 * (b"\0\0\x09" + b"a.example"))),
        made(naming(b"b\xfccher.example")),
        record(b"\x01\0\0\x02\x03\x03"),
    ],
)
def test_an_invalid_hello_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_hello(said)


def test_one_that_never_ends_is_given_up() -> None:
    drops = record(b"\x01\0\x70\0") + record(b"x") * LONGEST_HELLO

    with pytest.raises(ValueError, match="handshake"):
        read_hello(drops[: LONGEST_HELLO + 10])


@given(st.binary(max_size=300))
def test_no_input_breaks_it(said: bytes) -> None:
    try:
        told = read_hello(said)
    except ValueError:
        return
    assert told is None or isinstance(told, TlsClientHello)
