"""A session's own variables, and those that tell it its place."""

from typing import Any

import pytest

from kasmon.backends.surroundings import encoded
from kasmon.errors import UsageError
from kasmon.model.task import Peers, environment, peers
from kasmon.supervisor.environment import own_variables
from tests.supervisor.house import launch

PLACED: Any = {"task": 3, "wave": 2, "peers": 4, "plan": "auth"}


def test_an_agent_is_told_its_task_its_wave_and_how_many_work_in_it_also_by_the_ancestors_names() -> None:
    told = environment(launch("abcdefgh", **PLACED))

    assert told == {
        f"{prefix}_{name}": value
        for prefix in ("KASMON", "KASMOS")
        for name, value in {"SESSION": "abcdefgh", "TASK": "3", "WAVE": "2", "PEERS": "4", "PLAN": "auth"}.items()
    }


def test_a_session_without_a_task_is_told_only_who_it_is() -> None:
    assert {"KASMON_SESSION": "abcdefgh", "KASMOS_SESSION": "abcdefgh"} == environment(launch("abcdefgh"))


def test_peers_are_where_a_session_stands() -> None:
    assert Peers(task=3, wave=2, size=4, plan="auth") == peers(launch("abcdefgh", **PLACED))


def test_a_name_takes_the_callers_value_a_pair_its_own_and_both_go_over_the_profiles() -> None:
    own = own_variables(
        {"A": "profile", "B": "profile", "C": "profile"}, ["B", "C=x=y", "D="], {"A": "no", "B": "caller"}
    )

    assert {"A": "profile", "B": "caller", "C": "x=y", "D": ""} == own
    assert b"A=profile\0B=caller\0C=x=y\0D=\0" == encoded(own)


def test_a_value_that_is_not_utf8_is_kept_byte_by_byte() -> None:
    assert b"A=\xff\0" == encoded({"A": "\udcff"})


@pytest.mark.parametrize("named", ["NOWHERE", "1A=x", "A B=x", "=x", "", "KASMON_SESSION=x", "KASMOS_TASK=1", "A=x\0y"])
def test_a_variable_that_makes_no_sense_is_refused_by_name(named: str) -> None:
    with pytest.raises(UsageError, match=repr(named.partition("=")[0])):
        own_variables({}, [named], {})
