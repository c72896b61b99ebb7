"""What a script says: each verb, each line that cannot be read, and any text at all."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.events import PlanItem
from kasmon.scripted_agent import steps
from kasmon.scripted_agent.script import VERBS, boot_s, displayed_prompt, is_script, parse

DIFF = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2\n b\n"
EDIT = steps.ToolStep(name="Edit", input={"file_path": "app.py", "diff": DIFF}, diff=DIFF)


def bash(command: str, output: str = "", *, ok: bool = True) -> steps.ToolStep:
    return steps.ToolStep(name="Bash", input={"command": command}, output=output, ok=ok)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("prompt Fix it", steps.TextStep(verb="prompt", text="Fix it")),
        ("boot 2.5", steps.TimedStep(verb="boot", seconds=2.5)),
        ("say hello there", steps.SayStep(text="hello there")),
        ("say one\n  two\n\n    three", steps.SayStep(text="one\ntwo\n\n  three")),
        ("say\n  only below", steps.SayStep(text="only below")),
        ("think hm", steps.SayStep(text="hm", thinking=True)),
        ("tool Read", steps.ToolStep(name="Read")),
        ('tool Bash {"command": "ls"} => a', steps.ToolStep(name="Bash", input={"command": "ls"}, output="a")),
        ('tool Bash {"command": "ls"} => a\n  b', steps.ToolStep(name="Bash", input={"command": "ls"}, output="a\nb")),
        (
            'tool Bash {"command": "ls"} !> no',
            steps.ToolStep(name="Bash", input={"command": "ls"}, output="no", ok=False),
        ),
        ('tool Bash {"command": "a => b"}', steps.ToolStep(name="Bash", input={"command": "a => b"})),
        ("ask git push", steps.AskStep(tool=bash("git push"))),
        ("ask git push &", steps.AskStep(tool=bash("git push"), joined=True)),
        ("ask make a&&b", steps.AskStep(tool=bash("make a&&b"))),
        ("ask git push\n  pushed\n  twice", steps.AskStep(tool=bash("git push", "pushed\ntwice"))),
        ("edit app.py\n  -a = 1\n  +a = 2\n   b", steps.AskStep(tool=EDIT)),
        ("edit app.py\n    -a = 1\n    +a = 2\n     b", steps.AskStep(tool=EDIT)),
        ("edit app.py &\n  @@ -1,2 +1,2 @@\n  -a = 1\n  +a = 2\n   b", steps.AskStep(tool=EDIT, joined=True)),
        ("change app.py\n\t-a = 1\n\t+a = 2\n\t b", EDIT),
        ("question Which?|red|dark blue", steps.QuestionStep(text="Which?", options=("red", "dark blue"))),
        ("choose Which?|red|blue", steps.QuestionStep(text="Which?", options=("red", "blue"), many=True)),
        ("approve First this.\n  Then that.", steps.TextStep(verb="approve", text="First this.\nThen that.")),
        ("login", steps.VerbStep(verb="login")),
        (
            "plan\n  [x] read\n  [~] write\n  [ ] test",
            steps.TodoStep(
                items=(
                    PlanItem(text="read", state="done"),
                    PlanItem(text="write", state="doing"),
                    PlanItem(text="test"),
                )
            ),
        ),
        ("notice look here", steps.TextStep(verb="notice", text="look here")),
        ("usage 10 20", steps.UsageStep(input=10, output=20)),
        ("usage 10 20 30 40 0.5", steps.UsageStep(input=10, output=20, context=30, limit=40, cost_usd=0.5)),
        ("slow 0.25", steps.TimedStep(verb="slow", seconds=0.25)),
        ("limit 60", steps.TimedStep(verb="limit", seconds=60)),
        ("limit", steps.TimedStep(verb="limit", seconds=None)),
        ("fail no network", steps.TextStep(verb="fail", text="no network")),
        ("crash", steps.CrashStep(code=1)),
        ("crash 0", steps.CrashStep(code=0)),
        ("crash 139", steps.CrashStep(code=139)),
        ("crash SIGKILL", steps.CrashStep(signal="SIGKILL")),
        ("crash -15", steps.CrashStep(signal="SIGTERM")),
        ("hang", steps.VerbStep(verb="hang")),
        ("wait", steps.VerbStep(verb="wait")),
        ("loop", steps.VerbStep(verb="loop")),
    ],
)
def test_each_verb_is_one_step(line: str, step: steps.AnyStep) -> None:
    assert (msgspec.structs.replace(step, line=1),) == parse(line)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sya hello", "the command 'sya' is unknown"),
        ("say", "requires a text"),
        ("tool", "requires the tool's name"),
        ('tool {"a": 1}', "requires the tool's name"),
        ('tool Bash {"command": }', "is not valid JSON"),
        ('tool Bash {"a": "\\ud800"}', "is not valid JSON"),
        ("tool Bash " + '{"a":' * 100_000, "is not valid JSON"),
        ("tool Bash output", "after its name"),
        ("ask", "requires a command"),
        ("ask &", "requires a command"),
        ("edit app.py", "requires indented lines"),
        ("edit app.py\n  -a\n  oops", "each line of a diff"),
        ("question Which?", "requires a text and different labels"),
        ("question Which?|a|a", "requires a text and different labels"),
        ("plan", "requires indented items"),
        ("plan the release", "it takes no argument"),
        ("plan\n  [?] what", "each item must be"),
        ("usage 1", "IN OUT"),
        ("usage 1 many", "'many' is not a number"),
        ("usage -1 2", "not between"),
        ("slow inf", "not between"),
        ("slow nan", "not between"),
        ("slow", "is not a number"),
        ("crash 256", "not between"),
        ("crash 1.5", "not an exit code"),
        ("crash SIGNOPE", "the signal 'SIGNOPE' is unknown"),
        ("crash SIGSTOP", "does not end a process"),
        ("hang up", "it takes no argument"),
    ],
)
def test_an_unreadable_line_gives_the_reason(line: str, why: str) -> None:
    (bad,) = parse(line)

    assert isinstance(bad, steps.BadStep)
    assert why in bad.why


def test_a_bad_line_is_named_by_its_number_and_a_script_may_be_indented_as_a_whole() -> None:
    script = parse("# a comment\nsay one\n\nsya two\n  lost\nedit f\n  -a\n  x\nsay three\nprompt late\n")
    assert [steps.SayStep(text="one", line=2), steps.SayStep(text="three", line=9)] == [
        step for step in script if isinstance(step, steps.SayStep)
    ]
    assert [4, 5, 8, 10] == [step.line for step in script if isinstance(step, steps.BadStep)]

    assert parse("say one\nplan\n  [x] a") == parse("    say one\n    plan\n      [x] a")


@pytest.mark.parametrize("text", ["", "# say hello", "hello", "Say it", "please\ntry again", "  ", "saying"])
def test_a_text_without_a_verb_is_talk(text: str) -> None:
    assert not is_script(text)


@pytest.mark.parametrize("text", ["say it", "hello\nsay it", "  wait", "say", "sya\nhang"])
def test_a_text_with_a_verb_is_a_script(text: str) -> None:
    assert is_script(text)


def test_the_start_time_of_an_agent_is_in_its_script() -> None:
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
def test_any_text_is_read_or_its_bad_lines_are_named(text: str) -> None:
    numbers = [step.line for step in parse(text)]

    said = {n: line for n, line in enumerate(text.split("\n"), 1) if line.strip() and not line.startswith("#")}
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(said)
    heads = [n for n, line in said.items() if line[0] not in " \t"]
    for head, behind in pairwise([*heads, len(text) + 2]):
        assert any(head <= number < behind for number in numbers), f"line {head} is lost"


def test_the_user_sees_a_scripts_prompt_in_its_place_and_any_other_text_unchanged() -> None:
    assert "Mend it." == displayed_prompt("prompt Mend it.\nsay Done.")
    assert "say Done." == displayed_prompt("say Done.")
    assert "Mend it, then\nprompt me." == displayed_prompt("Mend it, then\nprompt me.")
    assert "" == displayed_prompt("")
