"""Which session is meant."""

import pytest

from kasmon.errors import AmbiguousSessionError, SessionNotFoundError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.supervisor.fleet.lookup import find


def fleet(**named: str) -> Fleet:
    return Fleet(sessions=tuple(Session(id=SessionId(session), name=name) for session, name in named.items()))


FLEET = fleet(abcdefgh="fix-auth", abcxyz22="docs", q2345678="abc", zzzzzzzz="abcdefgh")


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("abcdefgh", "abcdefgh"),
        ("fix-auth", "abcdefgh"),
        ("abcd", "abcdefgh"),
        ("abcx", "abcxyz22"),
        ("abc", "q2345678"),
    ],
    ids=["an id", "a name", "a prefix", "another prefix", "a name that is also a prefix"],
)
def test_an_id_has_priority_over_a_name_and_a_name_over_a_prefix(wanted: str, meant: str) -> None:
    assert meant == find(FLEET, wanted).id


@pytest.mark.parametrize("wanted", ["", "ab", "fix", "fix-aut", "Fix-auth", "docs ", "q2345678x"])
def test_a_part_of_a_name_or_a_short_prefix_matches_none(wanted: str) -> None:
    with pytest.raises(SessionNotFoundError):
        find(FLEET, wanted)


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(SessionNotFoundError, match="Did you mean 'fix-auth'"):
        find(FLEET, "fix-aut")


def test_an_ambiguous_prefix_names_its_candidates() -> None:
    with pytest.raises(AmbiguousSessionError) as refused:
        find(fleet(abcdefgh="one", abcxyz22="two", qqqqqqqq="three"), "abc")

    assert ("abcdefgh", "abcxyz22") == refused.value.candidates
