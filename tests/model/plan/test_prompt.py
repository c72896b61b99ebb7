"""What a task's agent is told first."""

import msgspec

from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import TaskRun
from kasmon.model.plan.prompt import LONGEST_RESULT, prompt, result_file, session_name
from kasmon.scripted_agent.script import parse
from kasmon.scripted_agent.steps import SayStep
from tests.support.sample_plans import checked, plan, task

PLAN = plan(
    task("a", title="the store", wave=1, body="Write it.", files=("store/*", "go.mod"), check="go test"),
    task("b", title="the tokens", wave=1, body="Write them."),
    task("c", title="the login", wave=2, body="Use both.", needs=("a",)),
    goal="log in", architecture="one service", tech_stack="Go",
)  # fmt: skip


def told(id_: str, of: Plan = PLAN, at: TaskRun | None = None, shares: bool = False, **results: str) -> str:
    return prompt(of, of.task(id_), at or TaskRun(), shares=shares, results=results)


def test_the_head_of_the_plan_is_in_every_prompt_and_elsewhere_nothing_of_a_missing_kasmon() -> None:
    for one in PLAN.tasks:
        assert "# tidy\nGoal: log in\nArchitecture: one service\nTech stack: Go\n" in told(one.id)

    there = prompt(PLAN, PLAN.task("a"), TaskRun(), shares=False, results={}, is_elsewhere=True)
    assert "kasmon ctx" in told("a")
    assert "kasmon ctx" not in there
    assert "When the task is done, end your turn.\nWhat those after you should know goes into" in there


def test_it_says_which_task_it_is_who_works_beside_it_and_what_not_to_touch_in_a_shared_folder() -> None:
    assert "This is task 1 of wave 1: the store. One other task runs in parallel." in told("a")
    assert "This is task 3 of wave 2: the login.\n" in told("c")
    assert "2 other tasks run in parallel." in told("a", plan(task("a"), task("b"), task("c")))

    assert "never stash" in told("a", shares=True)
    assert "stash" not in told("a")
    assert "stash" not in told("c", shares=True)  # it is alone in its wave
    assert "stash" in told("a", plan(task("a"), task("b", needs=("a",))), shares=True)


def test_the_prompt_states_what_may_be_changed_how_it_is_checked_and_how_to_report_done() -> None:
    text = told("a")

    assert "You may change: store/*, go.mod." in text
    assert "It counts as done when this ends with 0: go test" in text
    assert "kasmon ctx --done" in text
    assert "You may change" not in told("b")
    assert "counts as done" not in told("b")


def test_the_body_is_whole_between_head_and_foot() -> None:
    body = "Do:\n\n```sh\nmake\n```"

    assert f"\n## The task\n\n{body}\n" in told("a", plan(task("a", body=body)))


def test_only_what_others_need_is_asked_for_and_handed_on_a_long_result_by_its_beginning() -> None:
    assert result_file(PLAN.task("a")) in told("a")
    assert "result.md" not in told("b")
    assert "## What task a left for you\n\nThe API is in store.go." in told("c", a="The API is in store.go.")
    assert "left for you" not in told("c")

    assert LONGEST_RESULT == told("c", a="x" * 100_000).count("x" * 10) * 10


def test_an_earlier_failure_is_included_with_the_end_of_the_check_output() -> None:
    output = "".join(f"line {n}\n" for n in range(100))
    at = TaskRun(attempt=2, failures=("check failed (exit 1", "retried by user"))
    text = told("a", at=msgspec.structs.replace(at, check=checked("a", False, output=output)))

    assert "## What went wrong before\n\n- check failed (exit 1\n- retried by user\n" in text
    assert "    line 99\n" in text
    assert "    line 60\n" in text
    assert "line 59\n" not in text
    assert "went wrong" not in told("a")


def test_a_scripted_agent_gets_its_script_and_the_rest_as_comments() -> None:
    """Nothing that others wrote becomes a line of its script."""
    of = plan(task("a"), task("b", body="say hello\nsay bye", needs=("a",)), goal="one\nsay intruder")
    at = TaskRun(failures=("broke\nsay no",), check=checked("b", False, output="say never\n"))
    text = prompt(of, of.task("b"), at, shares=True, results={"a": "first\nsay not me"}, is_script=True)

    assert ["hello", "bye"] == [step.text for step in parse(text) if isinstance(step, SayStep)]
    assert 2 == len(parse(text))
    assert "# say not me" in text.splitlines()


def test_a_session_is_named_as_in_the_earlier_program() -> None:
    one = PLAN.task("c")

    assert "tidy-W2-T3" == session_name("tidy", one, 1)
    assert "tidy-W2-T3-2" == session_name("tidy", one, 2)
    assert "tidy-W2-T3.3" == session_name("tidy", one, 1, ["tidy-W2-T3", "tidy-W2-T3.2"])


def test_a_task_whose_branch_is_a_base_for_others_is_asked_to_commit() -> None:
    of = plan(task("a"), task("b", needs=("a",)), worktree="own")

    def told(id_: str, *, shares: bool = False) -> bool:
        text = prompt(of, of.task(id_), TaskRun(), shares=shares, results={})
        return "Commit your work on the branch of this folder" in text

    assert (True, False, False) == (told("a"), told("b"), told("a", shares=True))
