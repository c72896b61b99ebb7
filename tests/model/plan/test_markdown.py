"""Plans in Markdown, as the ancestor writes them."""

import pytest

from kasmon.errors import PlanFaultyError
from kasmon.model.plan.parser import parse_for_display, read
from tests.support.sample_plans import faults

ANCESTORS = """# Auth: implementation plan

**Goal:** log people in
**Architecture:** one service, two tables
**Tech Stack:** Go, SQLite

Some words that belong to nobody.

## Wave 1: foundations
### Task 1: the store
Write `store.go`.

- with tests
### Task 2: the tokens
Write `token.go`.

## Wave 2
Words in front of a wave's first task are nobody's.
### Task 3: the login
Use both.
"""


def wrong(text: str) -> list[str]:
    return faults(text, "tidy.md")


def test_a_plan_of_the_earlier_format_is_read_as_intended() -> None:
    plan = read(ANCESTORS, "auth.md")

    assert ("Auth: implementation plan", "log people in", "one service, two tables", "Go, SQLite") == (
        plan.name,
        plan.goal,
        plan.architecture,
        plan.tech_stack,
    )
    assert [("1", 1, "the store", 10), ("2", 1, "the tokens", 14), ("3", 2, "the login", 19)] == [
        (task.id, task.wave, task.title, task.line) for task in plan.tasks
    ]
    assert ["Write `store.go`.\n\n- with tests", "Write `token.go`.", "Use both."] == [task.body for task in plan.tasks]
    assert plan.gives_waves


def test_a_plan_without_a_title_has_the_name_of_its_file() -> None:
    assert "my-plan" == read("## Wave 1\n### Task 1: a\n", "docs/my-plan.md").name


def test_its_header_may_name_agent_mode_worktree_and_base() -> None:
    plan = read(
        "**Agent:** claude\n**Mode:** tmux\n**Worktree**: own\n**Base:** `v1`\n**Machine:** `m`\n"
        "## Wave 1\n### Task 1: a",
        "p.md",
    )

    assert ("claude", "tmux", "own", "v1", "m") == (plan.agent, plan.mode, plan.worktree, plan.base, plan.machine)
    spread = read("**Accounts:** work, home\n**Spread:** round-robin\n## Wave 1\n### Task 1: a", "p.md")
    assert (("work", "home"), "round-robin") == (spread.accounts, spread.spread)
    assert ["1: the spread is 'x'; it must be least-used or round-robin"] == faults(
        "**Spread:** x\n**Accounts:** a\n## Wave 1\n### Task 1: a", "p.md"
    )
    own = read("## Wave 1\n### Task 1: a\n**Accounts:** work and home\n", "p.md")
    assert ("work", "home") == own.tasks[0].accounts
    assert ("linux", "gpu") == read("**Labels:** linux, gpu\n## Wave 1\n### Task 1: a", "p.md").labels


def test_a_field_behind_the_first_wave_is_text_of_the_task() -> None:
    plan = read("**Goal:** real\n## Wave 1\n### Task 1: a\n**Goal:** said in it\n# A heading\n", "p.md")

    assert ("real", "**Goal:** said in it\n# A heading") == (plan.goal, plan.tasks[0].body)


FIELDS = """**Agent:** claude
## Wave 1
### Task 1: lex
**Check:** `pytest -q tests/lex`
Write it.
```
**Check:** not this one
```
### Task 2: draw
**Agent:** codex
**Machine:** any
## Wave 2
### Task 3: parse
**Needs:** 1, Task 2 and #2
Use both.

**Worktree:** own
**Labels:** `gpu, linux and gpu`
**Base:** `release/2`
**Check**: make && make test
"""


def test_a_task_may_give_its_check_its_agent_its_needs_its_worktree_and_its_base() -> None:
    lex, draw, parse = read(FIELDS, "p.md").tasks

    assert ("pytest -q tests/lex", "Write it.\n```\n**Check:** not this one\n```") == (lex.check, lex.body)
    assert ("codex", "", "") == (draw.agent, draw.body, draw.check)
    assert (("1", "2"), "own", "make && make test") == (parse.needs, parse.worktree, parse.check)
    assert "release/2" == parse.base
    assert ("any", ("gpu", "linux")) == (draw.machine, parse.labels)
    assert "Use both." == parse.body
    assert () == read(FIELDS, "p.md").warnings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Check:** a\n\n**Check:** b", ["5: task 1 already has a check, on line 3"]),
        ("**Check:**", ["3: the check of task 1 is empty; write it on the same line"]),
        ("x\n**Worktree:** mine", ["4: the worktree of task 1 is 'mine'; it must be shared, own or folder"]),
        (
            "x\n**Worktree:** shared\n**Base:** v1",
            ["5: task '1' has a base, but no worktree of its own to start from it (worktree = \"own\")"],
        ),
        ("x\n**Needs:** 7", ["4: task '1' needs '7', but there is no such task"]),
        ("x\n**Needs:** the tokens", ["4: task '1' needs 'the tokens', but there is no such task"]),
        ("x\n\n**Agent:** gpt", ["5: task '1' uses the unknown agent 'gpt'; available: claude"]),
        ("x\n**Needs:** 2\n### Task 2: b", ["4: task '1' needs '2' of the same wave"]),
    ],
)
def test_an_empty_field_of_a_task_is_reported_on_its_own_line(text: str, said: list[str]) -> None:
    assert said == faults(f"## Wave 1\n### Task 1: a\n{text}\n", "p.md", ("claude",))


def test_an_agent_of_the_plan_is_reported_on_its_own_line() -> None:
    assert ["3: the plan uses the unknown agent 'gpt'; available: claude"] == faults(
        "# x\n\n**Agent:** gpt\n## Wave 1\n### Task 1: a", "p.md", ("claude",)
    )


def test_any_other_bold_field_is_a_warning_and_stays_text() -> None:
    body = "**Mode:** tmux\n- **Check:** y\n- **Note:** z\nso **that:** is"
    plan = read(f"**Owner:** me\n## Wave 1\n**Check:** x\n### Task 1: a\n{body}", "p.md")

    assert [
        "1: '**Owner:**' is not a field of a plan and is ignored; the fields are Goal, Architecture, "
        "Tech Stack, Agent, Machine, Labels, Accounts, Spread, Mode, Worktree, Base",
        "3: '**Check:**' belongs to no task: it is before the first one of wave 1",
        "5: '**Mode:**' is not a field of a task and is read as its text; the fields are Check, "
        "Agent, Machine, Labels, Accounts, Needs, Worktree, Base",
        "6: 'Check' is read as text of the task; a field begins its line: '**Check:** ...'",
    ] == [f"{warning.line}: {warning.why}" for warning in plan.warnings]
    [task] = plan.tasks
    assert (body, "", "") == (task.body, task.check, task.mode)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("- **Files:** x", "'**Files:**' is not a field of a task and is read as its text"),
        ("* **Retries:** 2", "'**Retries:**' is not a field of a task and is read as its text"),
        ("1. **Time Limit:** 3m", "'**Time Limit:**' is not a field of a task and is read as its text"),
        ("1) **Check:** x", "'Check' is read as text of the task"),
        ("> **Check:** x", "'Check' is read as text of the task"),
        ("> - **Check:** x", "'Check' is read as text of the task"),
        ("**Check: true**", "'Check' is read as text of the task"),
        ("**Check** : true", "'Check' is read as text of the task"),
        ("- **Check** : true", "'Check' is read as text of the task"),
        ("- **Note:** a", ""),
        ("1. **First:** a", ""),
        ("> **Warning:** a", ""),
        ("**Note: take care**", ""),
        ("**The lexer** : a part", ""),
        ("so **Check:** it", ""),
    ],
)
def test_text_that_resembles_a_field_is_a_warning_and_other_bold_words_are_not(line: str, why: str) -> None:
    plan = read(f"## Wave 1\n### Task 1: a\n{line}\n", "p.md")

    assert [why] * bool(why) == [warning.why.partition(";")[0] for warning in plan.warnings]
    assert (line, "") == (plan.tasks[0].body, plan.tasks[0].check)


@pytest.mark.parametrize("line", ["- **Worktree:** own", "> **Agent:** claude", "**Worktree: own**"])
def test_a_field_of_the_plan_in_the_middle_of_its_line_is_a_warning(line: str) -> None:
    plan = read(f"# x\n{line}\n## Wave 1\n### Task 1: a\nb", "p.md")

    [warning] = plan.warnings
    assert (2, "is ignored" in warning.why) == (warning.line, True)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```", "```"),
        ("```markdown", "```"),
        ("~~~", "~~~"),
        ("````", "````"),
        ("   ```", "  `````"),
        ("~~~ ```", "~~~~"),
    ],
)
def test_headings_between_code_fences_are_text(opening: str, closing: str) -> None:
    fenced = f"{opening}\n## Wave 2\n### Task 7: not one\n**Goal:** none\n{closing}"
    plan = read(f"## Wave 1\n### Task 1: a\n{fenced}\n### Task 2: b\n", "p.md")

    assert ["a", "b"] == [task.title for task in plan.tasks]
    assert fenced == plan.tasks[0].body


@pytest.mark.parametrize("inner", ["``", "```` more", "~~~", "    ```", "```sh"])
def test_only_the_matching_fence_ends_code(inner: str) -> None:
    assert ["3: the code block that starts here is not closed"] == wrong(
        f"## Wave 1\n### Task 1: a\n````\n{inner}\n### Task 2: b"
    )


def test_backticks_within_a_line_open_no_code_and_line_ends_of_windows_make_no_difference() -> None:
    assert 2 == len(read("## Wave 1\n### Task 1: a\n``` is `what` opens code\n### Task 2: b", "p.md").tasks)
    assert read(ANCESTORS, "a.md") == read(ANCESTORS.rstrip("\n").replace("\n", "\r\n"), "a.md")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("words", ["0: the heading `## Wave 1` is missing"]),
        ("", ["0: it is empty"]),
        (" \n\t\n", ["0: it is empty"]),
        ("## Wave 1\n", ["1: wave 1 has no task"]),
        ("## Wave 1\n### Task 1: a\n## Wave 2\n## Wave 3\n### Task 2: b", ["3: wave 2 has no task"]),
        ("## Wave 1\n### Task 1: a\n## Wave 3\n### Task 2: b", ["3: found wave 3 where wave 2 was expected"]),
        ("## Wave 2\n### Task 1: a", ["1: found wave 2 where wave 1 was expected"]),
        ("## Wave 1\n### Task 1: a\n## Wave 1\n### Task 2: b", ["3: wave 1 is already defined on line 1"]),
        ("## Wave 1\n### Task 1: a\n### Task 1: b", ["3: task '1' is already defined on line 2"]),
        ("## Wave 1\n### Task 1: a\n### Task 3: b", ["3: task 2 is missing before task 3"]),
        ("## Wave 1\n### Task 2: a", ["2: task 1 is missing before task 2"]),
        ("## Wave 1\n### Task 0: a\n### Task 1: b", ["2: there is no task 0: tasks are numbered from 1"]),
        ("## Wave 1\n### Task 1:  ", ["2: task 1 has no title"]),
        ("### Task 1: a\n## Wave 1\n### Task 2: b", ["1: task 1 is before the first `## Wave`"]),
        (
            "## Wave 1\n### Task 1: a\n## wave two\n### Task 2 - b\n### Task 2: c",
            [
                "3: '## wave two' reads as neither `## Wave N` nor `### Task N: title`",
                "4: '### Task 2 - b' reads as neither `## Wave N` nor `### Task N: title`",
            ],
        ),
        (
            "**Worktree:** mine\n**Mode:** fast\n## Wave 1\n### Task 1: a",
            [
                "1: the worktree is 'mine'; it must be shared, own or folder",
                "2: the mode is 'fast'; it must be tmux or sdk",
            ],
        ),
        ("## Wave 1\n### Task 1: a\n```\n## Wave 2", ["3: the code block that starts here is not closed"]),
    ],
)
def test_each_fault_is_reported_once_with_its_line(text: str, said: list[str]) -> None:
    assert said == wrong(text)


def test_a_number_of_any_length_is_no_crash() -> None:
    assert wrong(f"## Wave {'1' * 5000}")
    assert wrong(f"## Wave 1\n### Task {'9' * 5000}: a")


@pytest.mark.parametrize("title", ["# Task queue: rewrite", "# Wave board", "# Waves of change", "# Tasks"])
def test_a_title_may_speak_of_tasks_and_waves(title: str) -> None:
    assert title[2:] == read(f"{title}\n## Wave 1\n### Task 1: a", "p.md").name


def test_a_faulty_plan_is_refused_with_file_line_and_how_many_more() -> None:
    text = "## Wave 1\n### Task 1: a\n### Task 1: b\n### Task 4: c"
    with pytest.raises(
        PlanFaultyError, match=r"docs/p\.md:3: task '1' is already defined on line 2\. \(and 1 more\)"
    ) as told:
        read(text, "docs/p.md")

    assert ("docs/p.md:3: task '1' is already defined on line 2.", "docs/p.md:4: task 2 is missing before task 4.") == (
        told.value.faults
    )


def test_a_faulty_plan_can_still_be_shown() -> None:
    plan, found = parse_for_display("## Wave 1\n### Task 1: a\n### Task 1: b", "p.md")

    assert found
    assert ["a", "b"] == [task.title for task in plan.tasks]


def test_an_unknown_agent_is_reported() -> None:
    text = "**Agent:** gpt\n## Wave 1\n### Task 1: a"

    assert [("1: the plan uses the unknown agent 'gpt'; available: claude, shell")] == faults(
        text, "p.md", ("shell", "claude")
    )
    assert [] == faults(text, "p.md")
