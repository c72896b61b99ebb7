"""`--alike`: requests that are alike are listed, and answered together by what was listed."""

from collections.abc import Iterator
from typing import Any

import pytest

from kasmon.cli.output.json_objects import request_object
from kasmon.model.fleet import requests
from kasmon.supervisor.fleet.snapshot import read_fleet
from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.cli.fork_server import ForkServer
from tests.support.wait import until

SCRIPTS = {
    **{name: f"ask git push origin {name}\nsay pushed {name}" for name in ("docs", "parser", "index")},
    "cleaner": "ask rm -rf build",
}


@pytest.fixture(scope="module")
def crew(fork_server: ForkServer) -> Iterator[Cli]:
    """Four agents, for all tests here: who was answered in one is asked anew for the next."""
    line = Cli(fork_server)
    for name in SCRIPTS:
        line.new(name)
    yield line
    line.close()


@pytest.fixture
def kasmon(crew: Cli) -> Cli:
    """All four agents ask."""
    for session in read_fleet(crew.paths).sessions:
        if not session.requests:
            assert 0 == crew("send", session.id, SCRIPTS[session.name], "--when", "idle").code
    until(lambda: len(waiting(crew)) == 4, LIMIT_S, "four requests")
    return crew


def waiting(kasmon: Cli) -> list[dict[str, Any]]:
    """What `kasmon inbox --json` would show."""
    return [request_object(request) for request in requests(read_fleet(kasmon.paths))]


@pytest.fixture
def pushers(kasmon: Cli) -> list[dict[str, Any]]:
    """Three requests that are alike, of three sessions; the fourth is not."""
    return [request for request in waiting(kasmon) if "push" in request["shown"]]


def test_equal_requests_are_listed_with_their_sessions_and_digests_and_answered_by_the_list(
    kasmon: Cli, pushers: list[dict[str, Any]]
) -> None:
    first = pushers[0]["id"]
    listed = kasmon.json("inbox", "--alike", first)
    assert [(r["id"], r["digest"]) for r in pushers] == [(r["id"], r["digest"]) for r in listed["requests"]]
    text = kasmon("inbox", "--alike", first).out
    for request in pushers:
        assert f"{request['id']}  {request['shown'].rpartition(' ')[2]}  " in text
        assert f"digest {request['digest']}" in text
    assert listed["digest"] in text

    done = kasmon.json("answer", first, "allow", "--alike", "--yes", "--digest", listed["digest"])
    assert ("allow", [("allow", None)] * 3) == (
        done["decision"],
        [(r["decision"], r["error"]) for r in done["requests"]],
    )
    for name in ("docs", "parser", "index"):
        kasmon.json("wait", name, "--for", "idle", "--timeout", "20")
        assert f"pushed {name}" in kasmon("read", name).out
    assert ["rm -rf build"] == [r["shown"] for r in waiting(kasmon)]


@pytest.mark.parametrize("more", [(), ("--yes",), ("--json",), ("--yes", "--json")])
def test_without_the_digest_of_the_list_none_of_it_is_answered(
    kasmon: Cli, pushers: list[dict[str, Any]], more: tuple[str, ...]
) -> None:
    done = kasmon("answer", pushers[0]["id"], "allow", "--alike", *more)

    assert 4 == done.code
    assert "there is no terminal to show them on" in done.err
    if "--json" not in more:
        assert all(request["digest"] in done.out for request in pushers)
    assert 4 == len(waiting(kasmon))


def test_on_a_terminal_each_request_is_shown_whole_and_the_decision_typed(
    kasmon: Cli, pushers: list[dict[str, Any]]
) -> None:
    words = ("answer", pushers[1]["id"], "deny", "--alike", "--reason", "not today")
    code, said = kasmon.terminal(*words, typed=[("to cancel:", "yes\n")])
    assert (4, 4) == (code, len(waiting(kasmon))), said
    code, said = kasmon.terminal(*words, typed=[("to these 3, anything else to cancel:", "deny\n")])

    assert 0 == code, said
    for number, request in enumerate(pushers, 1):
        name = request["shown"].rpartition(" ")[2]
        assert f"{number} of 3: {name}, scripted in {kasmon.home}" in said
        assert f"git push origin {name}" in said
    assert 1 == len(waiting(kasmon))
    kasmon.json("wait", "docs", "--for", "idle", "--timeout", "20")
    assert "not today" in kasmon("read", "docs").out


def test_a_list_that_changed_is_not_answered(kasmon: Cli, pushers: list[dict[str, Any]]) -> None:
    listed = kasmon.json("inbox", "--alike", pushers[0]["id"])
    kasmon.json("answer", pushers[2]["id"], "deny", "--digest", pushers[2]["digest"])
    stale = kasmon("answer", pushers[0]["id"], "allow", "--alike", "--yes", "--digest", listed["digest"], "--json")

    assert (4, "stale") == (stale.code, stale.json["error"]["code"])
    assert 3 == len(waiting(kasmon))


def test_a_request_to_be_decided_alone_is_not_answered_in_a_group(kasmon: Cli, pushers: list[dict[str, Any]]) -> None:
    [other] = [r for r in waiting(kasmon) if "rm" in r["shown"]]

    assert 4 == kasmon("answer", other["id"], "allow", "--alike").code
    assert [other["id"]] == [r["id"] for r in kasmon.json("inbox", "--alike", other["id"])["requests"]]
    assert 2 == kasmon("answer", pushers[0]["id"], "always", "--alike", "--yes", "--digest", "0").code
    assert 2 == kasmon("answer", pushers[0]["id"], "allow", "--yes").code
    assert 3 == kasmon("answer", "nobody-1", "allow", "--alike").code
    assert 4 == len(waiting(kasmon))
