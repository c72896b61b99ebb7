"""What the agent inside may know of its place and say of itself: `kasmon ctx`."""

import sys

from tests.support.cli.cli_runner import LIMIT_S, Cli
from tests.support.cli.fork_server import KASMON
from tests.support.wait import until

COMMAND = " ".join((sys.executable, *KASMON[1:]))


def test_ctx_shows_task_wave_and_peers_with_their_states(kasmon: Cli) -> None:
    place = ("--wave", "2", "--peers", "2")
    kasmon.new("lexer", "slow 60", "--task", "1", *place)
    peer = kasmon.new("parser", "ask ls", "--task", "2", *place)
    kasmon.request()
    told = kasmon.json("ctx", "lexer")["session"]

    assert (1, 2, 2) == (told["task"], told["wave"], told["peers"])
    assert [{"id": peer, "name": "parser", "task": 2, "state": "asking", "waits": None, "done": None}] == told[
        "peer_sessions"
    ]
    assert "parser" in kasmon("ctx", "lexer").out


def test_the_reason_of_waiting_is_in_the_row_until_the_next_turn(kasmon: Cli) -> None:
    session = kasmon.new("docs", "say ready")
    until(lambda: kasmon.json("ls", "--state", "idle")["sessions"], LIMIT_S)
    assert "the lexer" == kasmon.json("ctx", session, "--waiting", "the lexer")["session"]["waits"]
    assert "waits: the lexer" in kasmon("ls").out
    assert kasmon.json("ctx", session, "--waiting", "")["session"]["waits"] is None
    kasmon.json("ctx", session, "--waiting", "the parser")
    kasmon.json("send", session, "say again", "--wait", "idle")

    assert kasmon.json("show", session)["session"]["waits"] is None


def test_done_is_reported_with_or_without_a_text(kasmon: Cli) -> None:
    session = kasmon.new("docs", "say ready")
    assert kasmon.json("ctx", session)["session"]["done"] is None
    assert "" == kasmon.json("ctx", session, "--done")["session"]["done"]
    assert "all green" == kasmon.json("ctx", session, "--done", "all green")["session"]["done"]
    assert "done    all green" in kasmon("ctx", session).out


def test_inside_a_session_ctx_knows_its_id(kasmon: Cli) -> None:
    """In a terminal, with nothing but what kasmon gave the agent's environment."""
    inside = f"{COMMAND} ctx --waiting 'a build' >said.txt 2>&1; exec cat"
    session = kasmon("new", "docs", "--", "/bin/sh", "-c", inside).out.strip()
    until(lambda: kasmon.json("show", session)["session"]["waits"] == "a build", LIMIT_S)


def test_a_session_finds_kasmon_though_its_path_has_none(kasmon: Cli) -> None:
    usual = "/usr/bin:/bin"
    for name, given in (("usual", []), ("own", ["--env", f"PATH={usual}"])):
        inside = "kasmon ctx --waiting 'a build' >said.txt 2>&1; exec cat"
        made = kasmon("new", name, *given, "--", "/bin/sh", "-c", inside, PATH=usual)
        session = made.out.strip()
        until(lambda id_=session: kasmon.json("show", id_)["session"]["waits"] == "a build", LIMIT_S)  # type: ignore[misc]


def test_outside_of_a_session_it_must_be_named(kasmon: Cli) -> None:
    done = kasmon("ctx")

    assert 2 == done.code
    assert "KASMON_SESSION is not set" in done.err


def test_it_answers_no_request(kasmon: Cli) -> None:
    session = kasmon.new("docs", "ask ls")
    wanted = kasmon.request()["id"]
    kasmon.json("ctx", session, "--done", "yes", "--waiting", "allow")

    assert [wanted] == [one["id"] for one in kasmon.json("inbox")["requests"]]


def test_nothing_more_is_logged_for_an_ended_session(kasmon: Cli) -> None:
    session = kasmon.new("docs", "say ready")
    kasmon.json("stop", session)

    assert 0 != kasmon("ctx", session, "--waiting", "x").code
