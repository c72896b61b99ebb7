"""How facts are written down, and read again by any version."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.commands import Launch, Mode
from kasmon.model.events import (
    BaseEvent,
    Event,
    MessageWritten,
    RequestOpened,
    SessionCreated,
    SessionStarted,
    UnknownEvent,
    decode,
    encode,
)
from kasmon.model.permission import Request, RequestId, digest_of, seal
from tests.support.sample_events import KINDS, ME, TEXT, any_of, facts

WRITTEN = [kind for kind in KINDS if kind is not UnknownEvent]


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_kind_of_event_is_read_as_it_was_written(kind: type[BaseEvent], data: st.DataObject) -> None:
    fact: Event = data.draw(any_of(kind))

    assert fact == decode(encode(fact))


@given(fact=facts())
def test_a_written_event_is_one_line(fact: Event) -> None:
    assert b"\n" not in encode(fact)


def test_each_kind_has_a_unique_name() -> None:
    names = [kind.__struct_config__.tag for kind in KINDS]

    assert len(names) == len(set(names))


@given(line=st.binary(max_size=60))
def test_reading_never_fails_on_any_line(line: bytes) -> None:
    assert isinstance(decode(line), BaseEvent)


@given(fields=st.dictionaries(TEXT, TEXT, max_size=3))
def test_an_event_of_a_later_version_is_kept_unchanged(fields: dict[str, str]) -> None:
    line = msgspec.json.encode({**fields, "kind": "something.new", "at": 12.5})

    fact = decode(line)

    assert isinstance(fact, UnknownEvent)
    assert 12.5 == fact.at
    assert line == encode(fact)


def test_a_later_field_is_passed_over_and_an_earlier_fact_gets_the_defaults_of_its_new_fields() -> None:
    assert MessageWritten(at=1, text="hi") == decode(b'{"kind":"message.said","at":1,"text":"hi","mood":"good"}')
    assert SessionStarted(at=1) == decode(b'{"kind":"session.started","at":1}')


def test_a_field_of_an_earlier_version_is_ignored_within_a_launch_too() -> None:
    fact = SessionCreated(at=1, launch=Launch(session=ME, name="x", agent="claude", mode=Mode.SDK, backend="claude"))
    line = encode(fact).replace(b'"name":"x"', b'"name":"x","environment_names":["TOKEN"]')

    assert b"environment_names" in line
    assert fact == decode(line)


def test_bytes_that_are_no_text_are_kept_and_half_a_surrogate_pair_is_written() -> None:
    """JSON from an agent may hold one, a file cannot."""
    line = b'{"kind":"caf\xe9","at":3}'
    assert line == encode(decode(line))

    assert MessageWritten(at=1, text="a\ufffdb") == decode(encode(MessageWritten(at=1, text="a\ud83db")))


def test_a_request_with_half_a_surrogate_pair_has_a_digest_of_its_own() -> None:
    requests = [
        Request(id=RequestId("x-1"), session=ME, input={"command": command}) for command in ("\ud83d", "\ufffd")
    ]

    assert digest_of(requests[0]) != digest_of(requests[1])
    assert isinstance(decode(encode(RequestOpened(at=1, request=seal(requests[0])))), RequestOpened)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"at":' + b"[" * 100_000], ids=["a list", "an object"])
def test_an_endlessly_nested_line_is_read_as_unknown(line: bytes) -> None:
    assert UnknownEvent(at=0.0, raw=line.decode()) == decode(line)


@pytest.mark.parametrize("at", [b"null", b'"soon"', b"[]", b"1e999", b"true"])
def test_an_invalid_time_never_stops_a_reader(at: bytes) -> None:
    assert math.isfinite(decode(b'{"kind":"something.new","at":' + at + b"}").at)
