"""`kasmon answer` and `kasmon inbox` say all that a card says: reasons, notes, rules and how far they reach."""

import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from kasmon.agents.catalog import SHIPPED
from kasmon.cli.answer import shown
from kasmon.cli.show import option_lines, reason_lines
from kasmon.errors import UsageError
from kasmon.model.answer import must_be_complete
from kasmon.model.commands import Answer
from kasmon.model.permission import Decision
from kasmon.paths import user_paths
from tests.support.cli.cli_runner import Cli
from tests.support.sample_fleet import command, question
from tests.support.tui.pty_program import OnTerminal

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def test_never_shows_its_rule_and_its_scope_and_denies_with_a_reason(kasmon: Cli) -> None:
    (kasmon.home / ".git").mkdir()
    session = kasmon.new("worker", "ask git push\nsay done")
    request = kasmon.request()["id"]
    assert "rule: Bash(git push:*)" in kasmon("inbox").out
    code, said = kasmon.terminal("answer", request, "never", "--scope", "plan")
    assert (4, True, False) == (code, "does not belong to a plan" in said, "Type" in said)

    code, said = kasmon.terminal(
        *("answer", request, "never", "--scope", "project", "--reason", "not today"), typed=[("to cancel:", "never\n")]
    )
    assert 0 == code, said
    assert f"From now on denied in project {kasmon.home.resolve()}: Bash(git push:*)" in said
    assert ["project"] == [rule["scope"] for rule in kasmon.json("rules")["rules"]]
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    read = kasmon("read", session).out
    assert "always denied by user" in read
    assert "by rule k1 from now on: not today" in read


@pytest.mark.parametrize(
    ("decision", "more", "told"),
    [("allow", (), "allowed once by user"), ("deny", ("--reason", "smaller"), ": smaller")],
)
def test_a_plan_is_shown_whole_and_approved_or_rejected_with_feedback(
    kasmon: Cli, decision: str, more: tuple[str, ...], told: str
) -> None:
    session = kasmon.new("worker", "approve ## Steps\n  1. Read\n  2. Write\nsay done")
    request = kasmon.request()["id"]
    code, said = kasmon.terminal("answer", request, decision, *more, typed=[("to cancel:", f"{decision}\n")])

    assert (0, True) == (code, "2. Write" in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert told in kasmon("read", session).out


def test_an_edit_is_shown_as_it_would_run(kasmon: Cli) -> None:
    session = kasmon.new("worker", "ask rm -rf build\nsay done")
    request = kasmon.request()["id"]
    code, said = kasmon.terminal(
        *("answer", request, "edit", "--input", '{"command": "ls"}'), typed=[("to cancel:", "edit\n")]
    )

    assert (0, True, True) == (code, "rm -rf build" in said, '"command": "ls"' in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert "allowed with edited input by user" in kasmon("read", session).out


def test_the_agents_reason_and_the_description_of_each_option_are_shown_without_secrets() -> None:
    ask = question("x", options=("red", "blue"), option_notes=("warm", ""), free_text=True, why=f"Taste. {KEY}\u202e")
    text = "\n".join(shown(user_paths(), ask, Decision.CHOOSE, labels=("mauve",)))

    for part in (
        "1. red: warm\n2. blue\nor a custom answer (--text)",
        "Reason: Taste. ⟨hidden: 35 characters⟩⟨U+202E⟩",
    ):
        assert part in text
    assert text.endswith("Chosen: mauve")
    assert KEY not in text
    assert ["1. red: warm", "2. blue", "or a custom answer (--text)"] == option_lines(ask, ())
    assert ["reason: Taste. ⟨hidden: 35 characters⟩⟨U+202E⟩"] == reason_lines(ask, ())


def test_the_answer_is_shown_in_words_before_it_is_sent() -> None:
    ask = command("x", "git push", rule="Bash(git push:*)")

    always = shown(user_paths(), ask, Decision.ALWAYS, reach="this session")
    assert "From now on allowed in this session: Bash(git push:*)" == always[-1]
    assert "The request is denied, and the turn is interrupted." == shown(user_paths(), ask, Decision.CANCEL)[-1]


def test_the_inbox_has_the_agents_own_input_as_json(kasmon: Cli) -> None:
    kasmon.new("asks", "question Which one?|red|green")

    assert kasmon.request().keys() >= {"why", "option_notes", "free_text"}


def test_a_question_is_answered_by_number_by_label_by_both_and_with_free_text(kasmon: Cli) -> None:
    from kasmon.cli.answer import _label

    ask = question("x", options=("red", "2", "blue"), free_text=True, many=True)
    assert ["red", "2", "blue", "4", "mauve"] == [_label(ask, said) for said in ("1", "2", "3", "4", "mauve")]

    session = kasmon.new("asks", "question Which one?|red|green\nsay done")
    request = kasmon.request()
    assert 2 == kasmon("answer", request["id"], "choose", "--choice", "3", "--digest", request["digest"]).code
    for part in (request["digest"][:8], f"{request['digest'][:8]}…"):
        cut = kasmon("answer", request["id"], "choose", "--choice", "1", "--digest", part)
        assert (2, True) == (cut.code, f"{part!r} is only the beginning of the digest" in cut.err)
    code, said = kasmon.terminal("answer", request["id"], "choose", "--choice", "2", typed=[("to cancel:", "choose\n")])
    assert (0, True, True) == (code, "2. green" in said, "Chosen: green" in said), said
    kasmon.json("wait", session, "--for", "idle", "--timeout", "20")
    assert "green" in kasmon("read", session).out


def test_an_answer_that_would_do_less_than_stated_is_refused_and_the_request_stays_open(kasmon: Cli) -> None:
    kasmon.new("asks", "ask make build\nquestion Which one?|red|green\nsay done")
    request = kasmon.request()
    named = (request["id"], "--digest", request["digest"])
    refused = {
        ("allow", "--input", '{"command": "true"}'): "accepts no input",
        ("allow", "--choice", "red"): "accepts no choice",
        ("allow", "--reason", "fine"): "accepts no reason",
        ("allow", "--scope", "project"): "accepts no scope",
        ("edit",): "requires its new input",
        ("edit", "--input", "{}"): "lacks 'command'",
        ("edit", "--input", '{"cmd": "true"}'): "lacks 'command'",
        ("allow", "--alike", "--input", "{}"): "--alike cannot be combined with --input",
        ("allow", "--alike", "--reason", "fine"): "accepts no reason",
    }
    for words, why in refused.items():
        said = kasmon("answer", named[0], *words, *named[1:])
        assert (2, True) == (said.code, why in said.err), (words, said.err)
    assert request == kasmon.request()
    kasmon.json("answer", named[0], "edit", "--input", '{"command": "make check"}', *named[1:])
    [closed] = kasmon.json("show", request["session"])["session"]["closed"]
    assert "@@ -1 +1 @@\n-command: make build\n+command: make check" == closed["diff"]
    for told in (kasmon("show", "asks").out, kasmon("read", "asks").out, kasmon("export", "asks").out):
        assert "-command: make build" in told
        assert "+command: make check" in told

    request = kasmon.request()
    for label in ("99", "gren", "0", ""):
        said = kasmon("answer", request["id"], "choose", "--choice", label, "--digest", request["digest"])
        assert (2, True) == (said.code, "Choices: 1. red; 2. green." in said.err), said.err
    said = kasmon("answer", request["id"], "choose", "--text", "blue", "--digest", request["digest"])
    assert (2, True) == (said.code, "accepts no custom answer" in said.err)
    assert request == kasmon.request()


def test_an_unknown_label_is_not_taken_for_free_text() -> None:
    ask = question("x", options=("red", "green"), free_text=True)
    wrong = Answer(request=ask.id, digest=ask.digest, decision=Decision.CHOOSE, labels=("gren",))
    with pytest.raises(UsageError, match="no choice 'gren'") as refused:
        must_be_complete(ask, wrong)
    assert "Choices: 1. red; 2. green. It accepts a custom answer as text." == refused.value.hint

    must_be_complete(ask, msgspec.structs.replace(wrong, labels=(), text="gren"))
    with pytest.raises(UsageError, match="one choice, not 2"):
        must_be_complete(ask, msgspec.structs.replace(wrong, labels=("red",), text="gren"))


def test_input_beside_the_shown_text_is_shown() -> None:
    ask = command("x", "make", input={"command": "make", "background": True, "why": f"key {KEY}"})
    text = "\n".join(shown(user_paths(), ask, Decision.ALLOW))

    assert "background: true" in text
    assert "why: key ⟨hidden: 35 characters⟩" in text
    assert "command: make" not in text


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")
def test_a_request_that_may_be_cut_is_marked_on_a_terminal_and_no_command_allows_it(kasmon: Cli) -> None:
    """The person's own screen file names no proof; so nothing says that all of it is shown."""
    rules = (SHIPPED / "scripted" / "screen.toml").read_text().replace("[[menu.whole]]\n", "")
    (kasmon.paths.config / "screens").mkdir(parents=True, exist_ok=True)
    (kasmon.paths.config / "screens" / "scripted.toml").write_text(rules)
    done = kasmon("new", "worker", "--agent", "scripted", "--mode", "tmux", "--prompt", "ask git push\nsay done")
    assert 0 == done.code, done.err
    request = kasmon.request()

    assert request["may_be_cut"] is True
    assert not {"allow", "always", "edit"} & set(request["choices"])
    assert "this may be truncated: open the terminal" in kasmon("inbox").out
    refused = kasmon("answer", request["id"], "allow", "--digest", request["digest"])
    assert (4, True, True) == (refused.code, "may be truncated" in refused.err, "kasmon attach" in refused.err), (
        refused.err
    )
    taken = kasmon("answer", request["id"], "deny", "--digest", request["digest"])
    assert 0 == taken.code, taken.err


ASKS = """
import fcntl, termios, time
from kasmon.cli.output.console import typed
print("waits", flush=True)
while not int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, b"0000"), "little"):
    time.sleep(0.01)
print("heard", typed("Type allow"), flush=True)
"""


def test_text_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    with OnTerminal([sys.executable, "-P", "-c", ASKS], tmp_path) as screen:
        screen.until(b"waits")
        screen.send(b"allow\n")
        screen.until(b"to cancel:")
        screen.send(b"afterwards\n")
        screen.until(b"heard")
        screen.ended()

        assert b"heard afterwards" in screen.seen
