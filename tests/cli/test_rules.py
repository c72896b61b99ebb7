"""Standing rules from the command line: made by an answer, listed, revoked, and gone with their session."""

import pytest

from tests.support.cli.cli_runner import Cli
from tests.support.wait import until


def asked(kasmon: Cli) -> tuple[str, str, str]:
    """A session called `worker` that asks; its id, and the id and the digest of its request."""
    session = kasmon.new("worker", "ask git push")
    request = kasmon.request()
    return session, request["id"], request["digest"]


@pytest.mark.parametrize(("decision", "effect"), [("always", "allow"), ("never", "deny")])
def test_an_answer_makes_a_rule_that_can_be_listed_and_revoked(kasmon: Cli, decision: str, effect: str) -> None:
    session, request, digest = asked(kasmon)
    kasmon.json("answer", request, decision, "--digest", digest)
    (rule,) = kasmon.json("rules", "ls")["rules"]

    assert (effect, "Bash(git push:*)", "session", session, request) == (
        rule["effect"],
        rule["words"],
        rule["scope"],
        rule["of"],
        rule["request"],
    )
    assert "Bash(git push:*)" in kasmon("rules").out
    assert [rule] == kasmon.json("rules", "rm", rule["id"])["rules"]
    assert [] == kasmon.json("rules")["rules"]


def test_a_rule_answers_the_next_session_of_the_project(kasmon: Cli) -> None:
    _, request, digest = asked(kasmon)
    kasmon.json("answer", request, "always", "--digest", digest, "--scope", "project")
    kasmon.new("second", "ask git push\nsay done")
    until(lambda: "done" in kasmon("read", "second", "--lines", "3").out)
    kasmon.json("wait", "second", "--for", "idle", "--timeout", "20")

    assert [] == kasmon.json("inbox")["requests"]
    assert "always" not in kasmon("read", "second").out
    assert "allowed once by rule k1" in kasmon("read", "second").out


def test_a_removed_session_removes_its_rules(kasmon: Cli) -> None:
    _, request, digest = asked(kasmon)
    kasmon.json("answer", request, "always", "--digest", digest)
    kasmon.json("stop", "worker")
    kasmon.json("rm", "worker")

    assert [] == kasmon.json("rules")["rules"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["rules", "rm", "k9"], 3, "'k9'"),
        (["rules", "rm"], 2, "rules ls"),
        (["rules", "ls", "k1"], 2, "'k1'"),
        (["move", "nobody", "--to", "tmux"], 3, "'nobody'"),
        (["move", "nobody", "--to", "screen"], 2, "screen"),
    ],
)
def test_an_invalid_rule_is_an_error_with_a_next_step(kasmon: Cli, arguments: list[str], code: int, word: str) -> None:
    done = kasmon(*arguments)

    assert code == done.code
    assert word in done.err


def test_a_rules_file_that_cannot_be_read_is_named_and_stays(kasmon: Cli) -> None:
    kasmon.paths.config.mkdir(parents=True, exist_ok=True)
    kasmon.paths.rules.write_text("[[rule")
    done = kasmon("rules")

    assert 2 == done.code
    assert "rules.toml" in done.err
    assert "[[rule" == kasmon.paths.rules.read_text()
