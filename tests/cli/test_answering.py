"""`kasmon answer` and `kasmon inbox` say all that a card says: reasons, notes, rules and how far they reach."""

import pytest

from kasmon.commands.answering import shown
from kasmon.commands.looking import option_lines, reason_lines
from kasmon.model.permission import Decision
from kasmon.paths import places
from tests.cli.line import Line
from tests.fleets import command, question

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def test_never_shows_its_rule_and_its_reach_and_denies_with_a_reason(kasmon: Line) -> None:
    (kasmon.home / ".git").mkdir()
    session = kasmon.new("worker", "ask git push\nsay done")
    request = kasmon.request()["id"]
    assert "its rule: Bash(git push:*)" in kasmon("inbox").out
    code, said = kasmon.terminal("answer", request, "never", "--scope", "plan")
    assert (4, True, False) == (code, "belongs to no plan" in said, "Type" in said)

    code, said = kasmon.terminal(
        *("answer", request, "never", "--scope", "project", "--reason", "not today"), typed=[("leave it:", "never\n")]
    )
    assert 0 == code, said
    assert f"From now on denied in project {kasmon.home.resolve()}: Bash(git push:*)" in said
    assert ["project"] == [rule["scope"] for rule in kasmon.json("rules")["rules"]]
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    read = kasmon("read", session).out
    assert "denied from now on by user" in read
    assert "by rule k1 from now on: not today" in read


@pytest.mark.parametrize(
    ("decision", "more", "told"),
    [("allow", (), "allowed once by user"), ("deny", ("--reason", "smaller"), ": smaller")],
)
def test_a_plan_is_shown_whole_and_approved_or_sent_back(
    kasmon: Line, decision: str, more: tuple[str, ...], told: str
) -> None:
    session = kasmon.new("worker", "approve ## Steps\n  1. Read\n  2. Write\nsay done")
    request = kasmon.request()["id"]
    code, said = kasmon.terminal("answer", request, decision, *more, typed=[("leave it:", f"{decision}\n")])

    assert (0, True) == (code, "2. Write" in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert told in kasmon("read", session).out


def test_an_edit_is_shown_as_it_would_run(kasmon: Line) -> None:
    session = kasmon.new("worker", "ask rm -rf build\nsay done")
    request = kasmon.request()["id"]
    code, said = kasmon.terminal(
        *("answer", request, "edit", "--input", '{"command": "ls"}'), typed=[("leave it:", "edit\n")]
    )

    assert (0, True, True) == (code, "rm -rf build" in said, '"command": "ls"' in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert "allowed with another input by user" in kasmon("read", session).out


def test_the_agents_reason_and_what_each_option_means_are_told_without_secrets() -> None:
    ask = question("x", options=("red", "blue"), option_notes=("warm", ""), free_text=True, why=f"Taste. {KEY}\u202e")
    text = "\n".join(shown(places(), ask, Decision.CHOOSE, labels=("mauve",)))

    for part in ("1. red: warm\n2. blue\nor your own words", "Its reason: Taste. ⟨hidden: 35 characters⟩⟨U+202E⟩"):
        assert part in text
    assert text.endswith("Chosen: mauve")
    assert KEY not in text
    assert ["1. red: warm", "2. blue", "or your own words"] == option_lines(ask, ())
    assert ["its reason: Taste. ⟨hidden: 35 characters⟩⟨U+202E⟩"] == reason_lines(ask, ())


def test_what_is_about_to_be_said_is_told_in_words() -> None:
    ask = command("x", "git push", rule="Bash(git push:*)")

    always = shown(places(), ask, Decision.ALWAYS, reach="this session")
    assert "From now on allowed in this session: Bash(git push:*)" == always[-1]
    assert "It is denied, and the turn ends." == shown(places(), ask, Decision.CANCEL)[-1]


def test_the_inbox_has_what_the_agent_gave_for_programs(kasmon: Line) -> None:
    kasmon.new("asks", "question Which one?|red|green")

    assert kasmon.request().keys() >= {"why", "option_notes", "free_text"}


def test_a_question_is_answered_by_number_by_label_by_both_and_in_own_words(kasmon: Line) -> None:
    from kasmon.commands.answering import _label

    ask = question("x", options=("red", "2", "blue"), free_text=True, many=True)
    assert ["red", "2", "blue", "4", "mauve"] == [_label(ask, said) for said in ("1", "2", "3", "4", "mauve")]

    session = kasmon.new("asks", "question Which one?|red|green\nsay done")
    request = kasmon.request()
    assert 2 == kasmon("answer", request["id"], "choose", "--choice", "3", "--digest", request["digest"]).code
    code, said = kasmon.terminal("answer", request["id"], "choose", "--choice", "2", typed=[("leave it:", "choose\n")])
    assert (0, True, True) == (code, "2. green" in said, "Chosen: green" in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert "green" in kasmon("read", session).out


def test_what_the_tool_would_get_beside_the_shown_text_is_told() -> None:
    ask = command("x", "make", input={"command": "make", "background": True, "why": f"key {KEY}"})
    text = "\n".join(shown(places(), ask, Decision.ALLOW))

    assert "background: true" in text
    assert "why: key ⟨hidden: 35 characters⟩" in text
    assert "command: make" not in text
