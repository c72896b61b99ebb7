"""One command for many sessions: by names, names from stdin, or a filter; each outcome is reported."""

import pytest

from tests.support.cli.cli_runner import Cli


def states(kasmon: Cli) -> dict[str, str]:
    return {session["name"]: session["state"] for session in kasmon.json("ls")["sessions"]}


@pytest.fixture
def three(kasmon: Cli) -> Cli:
    """Three structured sessions that run: w-1, w-2, w-3."""
    done = kasmon("new", "w", "--count", "3", "--agent", "scripted", "--mode", "sdk")
    assert (0, 3) == (done.code, len(done.out.split())), done.err
    return kasmon


def test_many_sessions_start_by_one_command_each_with_its_number(kasmon: Cli) -> None:
    results = kasmon.json("new", "fix-{n}b", "--count", "2", "--agent", "scripted", "--mode", "sdk")["results"]

    assert ["fix-1b", "fix-2b"] == [result["session"]["name"] for result in results]
    assert {"fix-1b", "fix-2b"} == states(kasmon).keys()


def test_the_named_sessions_are_stopped_and_each_is_reported(three: Cli) -> None:
    done = three("stop", "w-1", "w-3")

    assert 0 == done.code
    assert ["w-1", "w-3"] == [line.split()[0] for line in done.out.splitlines()]
    assert {"w-1": "ended", "w-2": "idle", "w-3": "ended"} == states(three)


def test_a_name_of_no_session_is_reported_and_the_others_are_stopped(three: Cli) -> None:
    done = three("stop", "w-1", "nix", "w-2", "--json")

    assert 3 == done.code
    assert "'nix'" in done.err
    assert [None, "w-1", "w-2"] == [each["session"] and each["session"]["name"] for each in done.json["results"]]
    assert ["not-found"] == [each["error"]["code"] for each in done.json["results"] if "error" in each]
    assert "idle" == states(three)["w-3"]


def test_a_session_that_is_named_twice_is_stopped_once(three: Cli) -> None:
    assert 1 == len(three("stop", "w-1", "w-1").out.splitlines())


def test_the_exit_code_is_that_of_the_worst_outcome(three: Cli) -> None:
    three("stop", "w-1")

    done = three("stop", "w-1", "w-2")

    assert 4 == done.code
    assert "w-1" in done.err
    assert "ended" == states(three)["w-2"]


def test_names_come_from_stdin(three: Cli) -> None:
    assert 0 == three("stop", "-", given="w-1\n\n w-2 \n").code
    assert {"w-1": "ended", "w-2": "ended", "w-3": "idle"} == states(three)
    assert 2 == three("stop", "-", given="\n").code


def test_a_filter_selects_only_sessions_that_the_command_can_act_on(three: Cli) -> None:
    three("stop", "w-1")

    assert 0 == three("stop", "--all", "--yes").code
    assert {"ended"} == {*states(three).values()}
    assert 0 == three("restart", "--state", "ended", "--yes").code
    assert {"idle"} == {*states(three).values()}
    done = three("rm", "--all", "--yes")
    assert 4 == done.code
    assert "matches the filter" in done.err
    three("stop", "w-2")
    assert "w-2" in three("rm", "--all").out
    assert {"w-1", "w-3"} == states(three).keys()
    assert 4 == three("stop", "--plan", "p-none", "--yes").code


@pytest.mark.parametrize("arguments", [(), ("w-1", "--all"), ("w-1", "--state", "idle"), ("w-1", "--plan", "p")])
def test_names_and_a_filter_exclude_each_other_and_one_is_required(three: Cli, arguments: tuple[str, ...]) -> None:
    assert 2 == three("stop", *arguments).code
    assert {"idle"} == {*states(three).values()}


def test_a_filter_stops_several_only_when_that_is_confirmed(three: Cli) -> None:
    done = three("stop", "--all")

    assert 4 == done.code
    assert "3 sessions would be stopped" in done.err
    assert {"idle"} == {*states(three).values()}
    code, _ = three.terminal("stop", "--all", typed=[("Type yes", "no\n")])
    assert (4, {"idle"}) == (code, {*states(three).values()})
    code, _ = three.terminal("stop", "--all", typed=[("Type yes", "yes\n")])
    assert (0, {"ended"}) == (code, {*states(three).values()})


def test_the_answer_of_one_named_session_is_as_ever(three: Cli) -> None:
    assert "w-1" == three.json("stop", "w-1")["session"]["name"]
    done = three("stop", "w-1", "--json")
    assert (4, "ended") == (done.code, done.json["error"]["code"])
