"""Names in subjects: none of a member, a session or an agent becomes more than one part of a subject."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.bus.nats.subjects import check_name, encode_token, subject
from kasmon.errors import UsageError

LEGAL = re.compile(r"[A-Za-z0-9_=-]+")


@given(st.text(max_size=80), st.text(max_size=80))
def test_each_text_is_one_part_of_a_subject_of_its_own(text: str, other: str) -> None:
    part = encode_token(text)

    assert LEGAL.fullmatch(part)
    assert (part == encode_token(other)) == (text == other)


@pytest.mark.parametrize("text", ["a.b", "*", ">", "a b", "", "a\r\nPUB x 0", "=", "é", "\udc80", "a" * 65])
def test_a_session_name_adds_no_part_and_no_wildcard(text: str) -> None:
    found = subject("c1", "ev", "m1", text)

    assert 5 == len(found.split("."))
    assert not set("*> \r\n") & set(found)


@pytest.mark.parametrize(
    "name", ["", "A", "a.b", "*", ">", "a b", "-a", "a-", "a" * 33, "é", "a\n", "../x", 'a"', "$x"]
)
def test_a_name_of_a_cluster_or_a_member_with_other_characters_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid name for a member"):
        check_name(name, "a member")


@pytest.mark.parametrize("name", ["a", "gpu-1", "0", "a" * 32])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert name == check_name(name, "a member")
