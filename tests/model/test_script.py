"""What a script says: each verb, each line that cannot be read, and any text at all."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.event import PlanItem
from kasmon.model.script import VERBS, boot_s, is_script, parse, shown
from kasmon.model.step import (
    AnyStep,
    Approve,
    Ask,
    Bad,
    Boot,
    Crash,
    Fail,
    Limit,
    Login,
    Notice,
    Question,
    Say,
    Shown,
    Slow,
    ToDo,
    Tool,
    Usage,
    Word,
)

DIFF = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2\n b\n"
EDIT = Tool(name="Edit", input={"file_path": "app.py", "diff": DIFF}, diff=DIFF)


def bash(command: str, output: str = "", *, ok: bool = True) -> Tool:
    return Tool(name="Bash", input={"command": command}, output=output, ok=ok)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("prompt Fix it", Shown(text="Fix it")),
        ("boot 2.5", Boot(seconds=2.5)),
        ("say hello there", Say(text="hello there")),
        ("say one\n  two\n\n    three", Say(text="one\ntwo\n\n  three")),
        ("say\n  only below", Say(text="only below")),
        ("think hm", Say(text="hm", thinking=True)),
        ("tool Read", Tool(name="Read")),
        ('tool Bash {"command": "ls"} => a', Tool(name="Bash", input={"command": "ls"}, output="a")),
        ('tool Bash {"command": "ls"} => a\n  b', Tool(name="Bash", input={"command": "ls"}, output="a\nb")),
        ('tool Bash {"command": "ls"} !> no', Tool(name="Bash", input={"command": "ls"}, output="no", ok=False)),
        ('tool Bash {"command": "a => b"}', Tool(name="Bash", input={"command": "a => b"})),
        ("ask git push", Ask(tool=bash("git push"))),
        ("ask git push &", Ask(tool=bash("git push"), joined=True)),
        ("ask make a&&b", Ask(tool=bash("make a&&b"))),
        ("ask git push\n  pushed\n  twice", Ask(tool=bash("git push", "pushed\ntwice"))),
        ("edit app.py\n  -a = 1\n  +a = 2\n   b", Ask(tool=EDIT)),
        ("edit app.py\n    -a = 1\n    +a = 2\n     b", Ask(tool=EDIT)),
        ("edit app.py &\n  @@ -1,2 +1,2 @@\n  -a = 1\n  +a = 2\n   b", Ask(tool=EDIT, joined=True)),
        ("change app.py\n\t-a = 1\n\t+a = 2\n\t b", EDIT),
        ("question Which?|red|dark blue", Question(text="Which?", options=("red", "dark blue"))),
        ("choose Which?|red|blue", Question(text="Which?", options=("red", "blue"), many=True)),
        ("approve First this.\n  Then that.", Approve(text="First this.\nThen that.")),
        ("login", Login()),
        (
            "plan\n  [x] read\n  [~] write\n  [ ] test",
            ToDo(
                items=(
                    PlanItem(text="read", state="done"),
                    PlanItem(text="write", state="doing"),
                    PlanItem(text="test"),
                )
            ),
        ),
        ("notice look here", Notice(text="look here")),
        ("usage 10 20", Usage(input=10, output=20)),
        ("usage 10 20 30 40 0.5", Usage(input=10, output=20, context=30, limit=40, cost_usd=0.5)),
        ("slow 0.25", Slow(seconds=0.25)),
        ("limit 60", Limit(seconds=60)),
        ("limit", Limit(seconds=None)),
        ("fail no network", Fail(text="no network")),
        ("crash", Crash(code=1)),
        ("crash 0", Crash(code=0)),
        ("crash 139", Crash(code=139)),
        ("crash SIGKILL", Crash(signal="SIGKILL")),
        ("crash -15", Crash(signal="SIGTERM")),
        ("hang", Word(verb="hang")),
        ("wait", Word(verb="wait")),
        ("loop", Word(verb="loop")),
    ],
)
def test_each_verb_is_one_step(line: str, step: AnyStep) -> None:
    assert (msgspec.structs.replace(step, line=1),) == parse(line)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sya hello", "no verb is called 'sya'"),
        ("say", "needs a text"),
        ("tool", "needs the tool's name"),
        ('tool {"a": 1}', "needs the tool's name"),
        ('tool Bash {"command": }', "is no JSON"),
        ('tool Bash {"a": "\\ud800"}', "is no JSON"),
        ("tool Bash " + '{"a":' * 100_000, "is no JSON"),
        ("tool Bash output", "behind its name"),
        ("ask", "needs a command"),
        ("ask &", "needs a command"),
        ("edit app.py", "needs indented lines"),
        ("edit app.py\n  -a\n  oops", "a diff's line"),
        ("question Which?", "needs a text and different labels"),
        ("question Which?|a|a", "needs a text and different labels"),
        ("plan", "needs indented items"),
        ("plan the release", "nothing stands behind it"),
        ("plan\n  [?] what", "an item is written"),
        ("usage 1", "IN OUT"),
        ("usage 1 many", "'many' is no number"),
        ("usage -1 2", "not between"),
        ("slow inf", "not between"),
        ("slow nan", "not between"),
        ("slow", "is no number"),
        ("crash 256", "not between"),
        ("crash 1.5", "no exit code"),
        ("crash SIGNOPE", "no signal is called"),
        ("crash SIGSTOP", "does not end a process"),
        ("hang up", "nothing stands behind it"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line: str, why: str) -> None:
    (bad,) = parse(line)

    assert isinstance(bad, Bad)
    assert why in bad.why


def test_a_bad_line_is_named_by_its_number_and_the_others_are_read() -> None:
    script = parse("# a comment\nsay one\n\nsya two\n  lost\nedit f\n  -a\n  x\nsay three\nprompt late\n")

    assert [Say(text="one", line=2), Say(text="three", line=9)] == [step for step in script if isinstance(step, Say)]
    assert [4, 5, 8, 10] == [step.line for step in script if isinstance(step, Bad)]


def test_a_script_may_be_indented_as_a_whole() -> None:
    assert parse("say one\nplan\n  [x] a") == parse("    say one\n    plan\n      [x] a")


@pytest.mark.parametrize("text", ["", "# say hello", "hello", "Say it", "please\ntry again", "  ", "saying"])
def test_a_text_without_a_verb_is_talk(text: str) -> None:
    assert not is_script(text)


@pytest.mark.parametrize("text", ["say it", "hello\nsay it", "  wait", "say", "sya\nhang"])
def test_a_text_with_a_verb_is_a_script(text: str) -> None:
    assert is_script(text)


def test_how_long_an_agent_takes_to_start_stands_in_its_script() -> None:
    assert 3.0 == boot_s("prompt x\nboot 3\nsay y")
    assert 0.0 == boot_s("boot the machine")


verbs = st.sampled_from(sorted(VERBS))
lines = st.one_of(
    st.text(max_size=30),
    st.builds("{} {}".format, verbs, st.text(max_size=20)),
    verbs,
    st.sampled_from(["  -a", "  +b", "  [x] c", "   text", "\ttab", "", "# note", 'tool T {"a": [1]} => x']),
)


@given(st.lists(lines, max_size=12).map("\n".join))
def test_any_text_can_be_read_or_its_lines_are_named(text: str) -> None:
    numbers = [step.line for step in parse(text)]

    said = {n: line for n, line in enumerate(text.split("\n"), 1) if line.strip() and not line.startswith("#")}
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(said)
    heads = [n for n, line in said.items() if line[0] not in " \t"]
    for head, behind in pairwise([*heads, len(text) + 2]):
        assert any(head <= number < behind for number in numbers), f"line {head} is lost"


def test_a_person_sees_a_scripts_prompt_in_its_place_and_any_other_text_as_it_is() -> None:
    assert "Mend it." == shown("prompt Mend it.\nsay Done.")
    assert "say Done." == shown("say Done.")
    assert "Mend it, then\nprompt me." == shown("Mend it, then\nprompt me.")
    assert "" == shown("")
