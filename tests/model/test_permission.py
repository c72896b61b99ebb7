"""What an answer is bound to: the digest of exactly what was shown."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kasmon.model.events import RequestOpened, decode, encode
from kasmon.model.permission import Decision, Request, RequestId, RequestKind, SessionId, digest_of, seal
from tests.support.sample_events import ME, any_of, request


@pytest.mark.parametrize(
    "change",
    [
        {"session": SessionId("otherone")},
        {"kind": RequestKind.PLAN},
        {"tool": "Edit"},
        {"title": "rm -r built"},
        {"input": {"command": "rm -r /"}},
        {"shown": "rm -r build "},
        {"is_diff": True},
        {"choices": (Decision.ALLOW,)},
        {"options": ("yes",)},
        {"option_notes": ("what it means",)},
        {"many": True},
        {"free_text": True},
        {"why": "The sandbox denied it."},
        {"rule": "Bash(rm *)"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_request_has_another_digest(change: dict[str, Any]) -> None:
    assert digest_of(request()) != digest_of(msgspec.structs.replace(request(), **change))


def test_every_part_of_a_request_counts_in_its_digest() -> None:
    """A field that is added to Request must be decided on here: it counts, or it is one of these."""
    beside = {"id", "asked_at", "digest", "later", "answerable", "takes_reason", "required"}
    beside |= {"may_be_cut", "by_host"}  # who asks, and from where consent may come: no part of what is asked
    counted = {"session", "kind", "tool", "title", "input", "shown", "is_diff", "choices", "options", "option_notes"}
    counted |= {"many", "free_text", "why", "rule"}

    assert beside | counted == set(Request.__struct_fields__)


def test_neither_time_nor_setting_aside_nor_the_order_of_an_input_counts() -> None:
    later = msgspec.structs.replace(request(), id=RequestId("x-9"), asked_at=77.0, later=True)
    assert digest_of(request()) == digest_of(later)

    one, other = ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    assert _digest(one) == _digest(other)


@settings(max_examples=40)  # each is made of some hundred drawn values
@given(st.data())
def test_the_digest_survives_the_log(data: st.DataObject) -> None:
    opened: RequestOpened = data.draw(any_of(RequestOpened))
    written = RequestOpened(at=opened.at, request=seal(opened.request))

    read = decode(encode(written))

    assert isinstance(read, RequestOpened)
    assert read.request.digest == digest_of(read.request)


@given(
    commands=st.lists(st.text(st.characters(exclude_categories=[]), max_size=8), min_size=2, max_size=2, unique=True)
)
def test_different_commands_never_share_a_digest(commands: list[str]) -> None:
    first, second = ({"command": command} for command in commands)

    assert _digest(first) != _digest(second)


def _digest(tool_input: dict[str, Any]) -> str:
    return digest_of(Request(id=RequestId("x-1"), session=ME, input=tool_input))
