"""Whose sandboxes are whose: by their names, and by a lock for as long as their server lives."""

import msgspec
import pytest

from kasmon.errors import UsageError
from kasmon.mcp.client_identity import ClientIdentity, find_abandoned, temporary_name
from kasmon.model.commands import Mode
from kasmon.model.fleet import Fleet
from kasmon.paths import Paths, user_paths
from tests.support.sample_fleet import session


@pytest.fixture
def here() -> Paths:
    where = user_paths()
    where.make()
    return where


def fleet(*names: str, mode: Mode = Mode.INTERPRETER) -> Fleet:
    return Fleet(sessions=tuple(session(name, mode=mode) for name in names))


def test_two_clients_share_no_session_unless_they_request_it(here: Paths) -> None:
    one, other = ClientIdentity(here), ClientIdentity(here)
    both = fleet(one.name_of("analysis"), other.name_of("analysis"))

    assert one.name_of("analysis") != other.name_of("analysis")
    assert [[one.name_of("analysis")], [other.name_of("analysis")]] == [
        [each.name for _, each in owner.sessions(both)] for owner in (one, other)
    ]
    assert (
        ClientIdentity(here, "team").name_of("analysis")
        == ClientIdentity(here, "team").name_of("analysis")
        == "team/analysis"
    )


def test_a_client_sees_its_sessions_by_its_own_names_and_no_others(here: Paths) -> None:
    owner = ClientIdentity(here)
    names = [owner.name_of("b"), owner.name_of("a/1"), temporary_name(owner), "worker", f"{owner.own}", "team/b"]

    assert ["a/1", "b"] == [name for name, _ in owner.sessions(fleet(*names))]
    assert [] == owner.sessions(fleet(*names, mode=Mode.SDK))


def test_a_run_without_a_session_ends_with_the_server_also_if_its_client_has_a_name(here: Paths) -> None:
    owner = ClientIdentity(here, "team")
    temporary_sessions = temporary_name(owner)

    assert [temporary_sessions] == [
        each.name for each in owner.temporary_sessions(fleet(temporary_sessions, owner.name_of("kept")))
    ]


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", " a", "a ", "x" * 80, "\u202e"])
def test_a_name_that_would_be_displayed_as_another_is_refused(here: Paths, name: str) -> None:
    with pytest.raises(UsageError):
        ClientIdentity(here).name_of(name)


@pytest.mark.parametrize("client", ["a/b", "mcp-12345678", " a", "\x07"])
def test_a_client_name_that_could_reach_other_sessions_is_refused(here: Paths, client: str) -> None:
    with pytest.raises(UsageError):
        ClientIdentity(here, client)


def test_the_session_of_a_dead_server_is_found_and_one_of_a_running_server_is_left_alone(here: Paths) -> None:
    alive, dead = ClientIdentity(here), ClientIdentity(here)
    alive.begin()
    left = temporary_name(dead)
    all_of_them = fleet(temporary_name(alive), alive.name_of("a"), left, dead.name_of("a"), "mcp-beginner/a", "team/a")

    assert {left, dead.name_of("a")} == {each.name for each in find_abandoned(here, all_of_them)}
    assert [] == find_abandoned(here, fleet(left, mode=Mode.TMUX))
    elsewhere = msgspec.structs.replace(
        all_of_them, sessions=tuple(msgspec.structs.replace(each, via="gpu-1") for each in all_of_them.sessions)
    )
    assert ([], [], []) == (
        find_abandoned(here, elsewhere),
        dead.temporary_sessions(elsewhere),
        dead.sessions(elsewhere),
    )

    alive.end()
    assert 4 == len(find_abandoned(here, all_of_them))
    assert [] == list(here.mcp.iterdir())
