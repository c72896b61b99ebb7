"""Plans in TOML."""

import re
from pathlib import Path

import pytest

from kasmon.model.plan.parser import parse_for_display, read
from kasmon.model.plan.toml import PLAN_KEYS, TASK_KEYS
from tests.support.sample_plans import faults

FULL = '''name = "tidy"
goal = "less"
architecture = "one"
tech_stack = "sh"
agent = "claude"
mode = "sdk"
worktree = "own"
advance = "auto"
without_check = "advance"
done_by = "turn"
limit = 3
per_machine = 2

[[task]]
id = "lexer"
title = "Write the lexer"
prompt = """
[[task]]
id = "no task, but text"
"""

[[task]]
id = 7
run = "make test"
needs = ["lexer"]
inherits = "lexer"
agent = "shell"
mode = "tmux"
sandbox = "jail"
worktree = "folder"
files = ["*.py", "docs/*"]
check = "test -f out"
retries = 2
time_limit = "1.5m"

[[task]]
prompt = "elsewhere"
host = "box"
agent = "claude"
mode = "tmux"
'''


def test_every_key_is_read() -> None:
    plan = read(FULL, "x.toml", ("claude", "shell"))

    assert ("tidy", "less", "one", "sh", "claude", "sdk", "own", "auto", "advance", "turn", 3, 2) == (
        plan.name, plan.goal, plan.architecture, plan.tech_stack, plan.agent, plan.mode, plan.worktree, plan.advance,
        plan.without_check, plan.done_by, plan.limit, plan.per_machine,
    )  # fmt: skip
    lexer, made, far = plan.tasks
    assert "claude@box" == far.agent
    assert ("lexer", 1, "Write the lexer", 14, 1) == (lexer.id, lexer.number, lexer.title, lexer.line, lexer.wave)
    assert '[[task]]\nid = "no task, but text"\n' == lexer.body
    assert ("7", 2, "make test", ("lexer",), "lexer", "shell", "tmux", "jail", "folder", 22, 2) == (
        made.id, made.number, made.run, made.needs, made.inherits, made.agent, made.mode, made.sandbox, made.worktree,
        made.line, made.wave,
    )  # fmt: skip
    assert (("*.py", "docs/*"), "test -f out", 2, 90.0) == (made.files, made.check, made.retries, made.time_limit_s)


def tasks(*tables: str, head: str = "") -> str:
    return head + "".join(f"[[task]]\n{table}\n" for table in tables)


def test_a_task_without_a_name_is_called_by_its_number_and_titled_by_its_first_line() -> None:
    [first, second] = read(tasks('prompt = "\\n  Look at it.\\nThen go."', 'run = "make"\nneeds = [1]'), "p.toml").tasks

    assert ("1", "Look at it.", "2", "make", ("1",)) == (first.id, first.title, second.id, second.title, second.needs)


def test_tasks_without_waves_are_levels_of_the_graph_and_advance_by_themselves() -> None:
    plan = read(
        tasks(
            'id = "d"\nrun = "d"\nneeds = ["b", "c"]',
            'id = "b"\nrun = "b"\nneeds = ["a"]',
            'id = "c"\nrun = "c"\ninherits = "a"',
            'id = "a"\nrun = "a"',
        ),
        "p.toml",
    )

    assert [3, 2, 2, 1] == [task.wave for task in plan.tasks]
    assert (False, "auto", 3) == (plan.gives_waves, plan.advance, plan.waves)


def test_stated_waves_are_kept_and_the_user_is_asked_between_them() -> None:
    plan = read(tasks('wave = 1\nrun = "a"', 'wave = 2\nrun = "b"\nneeds = ["1"]'), "p.toml")

    assert (True, "", [1, 2]) == (plan.gives_waves, plan.advance, [task.wave for task in plan.tasks])
    assert "ask" == plan.settled(agent="x", limit=1, advance=False, believe=False).advance


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90), ("0.5", 0.5), ('"90s"', 90), ('"2h"', 7200), ('"3 m"', 180)]
)
def test_a_time_limit_is_seconds_or_has_a_unit(written: str, seconds: float) -> None:
    assert seconds == read(tasks(f'run = "a"\ntime_limit = {written}'), "p.toml").tasks[0].time_limit_s


@pytest.mark.parametrize("written", ["inf", "1" + "0" * 400, '"1e9h"', "1" * 5000, '"' + "9" * 500 + 'h"'])
def test_a_time_limit_of_any_size_is_read_or_reported(written: str) -> None:
    text = tasks(f'run = "a"\ntime_limit = {written}')
    said = faults(text)

    assert (
        all("time" in line or "digits" in line for line in said) if said else read(text, "p.toml").tasks[0].time_limit_s
    ), said


@pytest.mark.parametrize("written", ["0", "-1", '"soon"', "true", "nan", '"5d"', "[1]", '""'])
def test_an_invalid_time_limit_is_reported(written: str) -> None:
    said = faults(tasks(f'run = "a"\ntime_limit = {written}'))

    assert any(line.startswith("3: ") and "time" in line for line in said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "machine = 'm'\nlabels = ['gpu']\n" + tasks("run='a'"),
            ["2: the plan names the machine 'm' and labels; name one"],
        ),
        (tasks("run='a'\nmachine='m'\nlabels=['gpu']"), ["4: task '1' names the machine 'm' and labels; name one of"]),
        (tasks("run='a'\nhost='box'\nmachine='m'"), ["4: task '1' names a machine, but its agent runs on the host 'b"]),
        (tasks("run='a'\nmachine='m'\nworktree='folder'"), ["4: task '1' works in a worktree of its own on another m"]),
        (tasks("run='a'\nworktree='shared'\nlabels=['gpu']"), ["3: task '1' works in a worktree of its own on anothe"]),
        (
            "worktree = 'folder'\n" + tasks("run='a'\nmachine='m'"),
            ["2: task '1' works in a worktree of its own on ano"],
        ),
        (
            tasks("run='a'\nmachine='m'", "run='b'\ninherits='1'\nmachine='n'", "run='c'\ninherits='1'\nlabels=['x']"),
            ["7: task '2' names another machine than '1', in", "11: task '3' names another machine than '1', in"],
        ),
        (tasks("run='a'", head="per_machine = 0\n"), ["1: the per_machine is 0; the minimum is 1"]),
        ("spread = 'least-used'\n" + tasks("prompt='a'"), ["1: the plan has a spread, but no accounts"]),
        (
            "spread = 'x'\naccounts=['a']\n" + tasks("prompt='a'"),
            ["1: spread of the plan is 'x'; it must be"],
        ),
        (tasks("run='a'\naccounts=['w']"), ["3: task '1' is a shell command, which uses no account"]),
        (tasks("prompt='a'\naccounts=['w']\nlabels=['x']"), ["3: task '1' may run on another machine, with the log"]),
        (tasks("prompt='a'\naccounts=['w']\nhost='h'"), ["3: task '1' may run on another machine, with the log"]),
        (tasks("run='a'\nlabels=[1.5]"), ["3: labels of task '1' holds 1.5, which is not a name"]),
        ("", ["0: it is empty"]),
        ('name = "x"', ["0: it has no task"]),
        ("name = ", ["1: it is not valid TOML: Invalid value"]),
        ('name = "x"\n[[task]]\nrun = "a', ["3: it is not valid TOML: Unterminated string"]),
        ("a = " + "[" * 5000, ["0: it cannot be read as TOML: maximum recursion depth exceeded"]),
        ("task = 5", ["1: task of the plan is 5; it must be a list"]),
        ("task = [5]", ["1: task 1 is not a table"]),
        (tasks("prompt = ''"), ["1: task '1' has neither a prompt nor a command to run"]),
        (tasks("prompt = 'a'\nrun = 'b'"), ["3: task '1' has both a prompt and a command to run"]),
        (
            tasks("run = 'a'\nneed = ['b']"),
            ["3: task '1' has no key 'need'; the keys are id, title, prompt, run, wave"],
        ),
        ("naem = 'x'\n" + tasks("run = 'a'"), ["1: the plan has no key 'naem'; the keys are name, goal"]),
        (tasks("run = 'a'\n\nneeds = ['b']"), ["4: task '1' needs 'b', but there is no such task"]),
        (tasks("run = 'a'\ninherits = 'b'"), ["3: task '1' inherits 'b', but there is no such task"]),
        (tasks("run = 'a'\nneeds = [true]"), ["3: needs of task '1' holds True, which is not a name"]),
        (tasks("run = 'a'\nneeds = 'b'"), ["3: needs of task '1' is 'b'; it must be a list"]),
        (tasks("run = 'a'\nneeds = ['1']"), ["3: task '1' waits for itself: '1' -> '1'"]),
        (
            tasks("id='a'\nrun='a'\nneeds=['c']", "id='b'\nrun='b'\nneeds=['a']", "id='c'\nrun='c'\ninherits='b'"),
            ["4: task 'a' waits for itself: 'a' -> 'c' -> 'b' -> 'a'"],
        ),
        (tasks("id='a'\nrun='a'", "id='a'\nrun='b'"), ["5: task 'a' is already defined on line 2"]),
        (tasks("id='1'\nrun='a'", "id=1\nrun='b'"), ["5: task '1' is already defined on line 2"]),
        (tasks("id=1.5\nrun='a'"), ["2: the id 1.5 is neither a string nor a number"]),
        (tasks("wave=1\nrun='a'", "run='b'"), ["4: task '2' has no wave, but other tasks have one"]),
        (tasks("wave=1\nrun='a'", "wave=3\nrun='b'"), ["5: wave 2 has no task, but there is a wave 3"]),
        (tasks("wave=2\nrun='a'", "wave=1\nrun='b'\nneeds=['1']"), ["7: task '2' needs '1' of wave 2, which is later"]),
        (tasks("wave=1\nrun='a'", "wave=1\nrun='b'\nneeds=['1']"), ["7: task '2' needs '1' of the same wave"]),
        (tasks("wave=0\nrun='a'"), ["2: wave of task '1' is 0; the minimum is 1"]),
        (tasks("run='a'\nretries=-1"), ["3: retries of task '1' is -1; the minimum is 0"]),
        (tasks("run='a'\nretries=true"), ["3: retries of task '1' is True; it must be a whole number"]),
        (
            tasks("run='a'\n\ncheck_time_limit='soon'"),
            ["4: the time limit of the check of task '1' is 'soon'; use a form like"],
        ),
        ("\ntask = [\n  {run = 'a', x = 1},\n]", ["3: task '1' has no key 'x'"]),
        (
            tasks("run='a'", "run='b'") + "[task.x]\nrun = 1\n[other]",
            ["5: task '2' has no key 'x'", "7: the plan has no key 'o"],
        ),
        (tasks("run='a'\n x.y = 1"), ["3: task '1' has no key 'x'"]),
        (tasks("run='a'", head="limit = 0\n"), ["1: the limit is 0; the minimum is 1"]),
        (tasks("run='a'\nworktree='mine'"), ["3: worktree of task '1' is 'mine'; it must be shared or own or folder"]),
        (tasks("run='a'\nsandbox='box'"), ["3: sandbox of task '1' is 'box'; it must be jail or microvm or e2b"]),
        (tasks("run='a'\nagent='claude@x'\nhost='y'"), ["4: task '1' names two hosts: 'claude@x' and 'y'"]),
    ],
)
def test_each_fault_is_reported_with_its_line(text: str, said: list[str]) -> None:
    found = faults(text)

    assert len(said) == len(found), found
    assert said == [line[: len(wanted)] for line, wanted in zip(found, said, strict=True)]


def test_an_unknown_agent_is_told_on_the_line_of_its_task_whatever_its_host_or_on_the_plans_own() -> None:
    text = tasks("prompt='a'\nagent='gpt@box'", "prompt='b'\nagent='claude@box'")
    assert ["3: task '1' uses the unknown agent 'gpt'; available: claude"] == faults(text, agents=("claude",))

    text = tasks("run='a'", head="goal = 'x'\nagent = 'gpt'\n")
    assert ["2: the plan uses the unknown agent 'gpt'; available: claude"] == faults(text, agents=("claude",))


def test_a_check_has_a_time_limit_of_its_own_and_a_need_that_is_named_twice_is_one() -> None:
    [own, usual] = read(
        tasks("run='a'\ntime_limit='9s'\ncheck='b'\ncheck_time_limit='2h'", "run='c'\ntime_limit='9s'"), "p.toml"
    ).tasks
    assert (7200, 9, 600) == (own.check_limit_s, own.time_limit_s, usual.check_limit_s)

    assert ("1",) == read(tasks("run='a'", "run='b'\nneeds=['1', 1, '1']"), "p.toml").tasks[1].needs


def test_odd_line_ends_and_text_that_looks_like_keys_do_not_move_the_lines() -> None:
    text = "# \x85 \u2028 \x0c\n".replace("\x0c", "") + tasks("run='a'", "needs = ['x']\nrun='b'")
    assert ["5: task '2' needs 'x', but there is no such task"] == faults(text)

    text = tasks("prompt = '''\nretries = 3\n[[task]]\n'''\ncheck = \"echo '''\"\nretries = -2")
    assert ["7: retries of task '1' is -2; the minimum is 0"] == faults(text)


ELSEWHERE = """done_by = "said"
[[task]]
id = "here"
run = "cd src"
[[task]]
id = "there"
run = "make"
host = "box"
inherits = "here"
[[task]]
id = "back"
run = "make"
inherits = "there"
[[task]]
id = "tree"
prompt = "write"
agent = "claude@box"
worktree = "own"
"""


def test_a_key_that_other_machines_do_not_support_is_a_fault() -> None:
    assert [
        "9: task 'there' runs on 'box': `inherits` does not work across machines; use `needs`",
        "13: task 'back' should continue from task 'there', which runs on 'box': `inherits` does not "
        "work across machines; use `needs`",
        "17: task 'tree' runs on 'box', where an agent cannot report that it is done (done_by)",
        "18: task 'tree' runs on 'box', in the home folder there, so it can have no worktree",
    ] == faults(ELSEWHERE)


def test_a_plan_with_a_remote_agent_has_its_tasks_there_and_its_commands_here() -> None:
    text = 'agent = "claude@box"\n' + tasks('id = "a"\nprompt = "x"', 'id = "b"\nrun = "x"\ninherits = "a"')

    assert [
        "8: task 'b' should continue from task 'a', which runs on 'box': "
        "`inherits` does not work across machines; use `needs`"
    ] == faults(text)


def test_a_base_is_of_the_plan_or_of_a_task_with_a_worktree_of_its_own() -> None:
    own = 'worktree = "own"\nbase = "develop"\n[[task]]\nprompt = "x"\nbase = "v1"\n'
    found, faults = parse_for_display(own, "tidy.toml")

    assert ((), "develop", "v1") == (faults, found.base, found.tasks[0].base)
    for wrong in (own.replace('"own"', '"shared"'), own.replace('worktree = "own"\n', "")):
        assert [
            "has a base, but no worktree of its own" in fault.why for fault in parse_for_display(wrong, "t.toml")[1]
        ] == [True]


def test_every_key_is_documented_and_no_other() -> None:
    text = (Path(__file__).parents[3] / "docs" / "plans.md").read_text()
    of_plan, of_task = (
        re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
        for part in text.split("## Markdown")[0].split("Keys of a `[[task]]`")
    )

    assert (list(PLAN_KEYS), list(TASK_KEYS)) == (of_plan, of_task)


def test_env_cannot_name_a_variable_that_leads_git_to_another_repository() -> None:
    [fault] = faults(tasks('run = "a"', head='env = ["GIT_AUTHOR_NAME", "GIT_DIR"]\n'), "p.toml")

    assert fault.startswith("1: env of the plan holds 'GIT_DIR'")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('task = [\n {run="a"},\n {run="b", x=1},\n]\nlimit = 0\n', [3, 5]),
        ('task = [ # {\n {run="""\n{[""", needs=[]}, {run="b", x=1},\n]\nlimit = 0\n', [3, 5]),
        ('[[task]]\nrun="a"\nneeds = [\n"]",\n# mode = 3\n"mode = 2"]\nmode = "x"\n', [3, 3, 7]),
        ('[[task]]\nprompt = """a\\""" [ """ # [\nmode = "x"\n', [3]),
        ("[[task]]\nprompt = '''a''''\nmode = 'x'\n", [3]),
        ('[[task]]\nprompt = "a\\" ["\nmode = "x"\n', [3]),
    ],
)
def test_brackets_in_lists_and_texts_do_not_lead_to_other_lines(text: str, lines: list[int]) -> None:
    assert lines == [int(fault.partition(":")[0]) for fault in faults(text, "p.toml")]
