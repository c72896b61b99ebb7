"""An edit of a plan that runs."""

from typing import Any

import msgspec
import pytest

from kasmon.model.plan.diff import PlanDiff, changes
from kasmon.model.plan.events import PlanFact
from kasmon.model.plan.plan import Plan, Task
from tests.support.sample_plans import began, done, failed, plan, run, steered, task

OLD = plan(task("a", body="x"), task("b", needs=("a",)), task("c", run="make"))


def edited(**tasks: dict[str, Any] | None) -> Plan:
    """`OLD` with these tasks changed, or without those that are None."""
    kept = [
        msgspec.structs.replace(one, **(tasks.get(one.id) or {}))
        for one in OLD.tasks
        if tasks.get(one.id, {}) is not None
    ]
    return msgspec.structs.replace(OLD, tasks=tuple(kept))


def test_a_file_that_says_the_same_and_lines_that_moved_are_no_edit() -> None:
    assert PlanDiff((), ()) == changes(OLD, OLD, run())
    assert PlanDiff(()) == changes(OLD, edited(a={"line": 90}), run())


def test_what_differs_is_said_field_by_field_and_added_and_taken_away_tasks_are() -> None:
    new = msgspec.structs.replace(edited(a={"body": "y", "retries": 2}), goal="more")
    assert ("~ goal: '' -> 'more'", "~ task a: body: 'x' -> 'y'", "~ task a: retries: 0 -> 2") == changes(
        OLD, new, run()
    ).lines

    new = msgspec.structs.replace(OLD, tasks=(*OLD.tasks[:2], task("d", 3, title="more", run="x")))
    assert PlanDiff(("- task c: c", "+ task d: more")) == changes(OLD, new, run())


@pytest.mark.parametrize("facts", [[began("c")], list(done("c")), [began("c"), steered("retry", "c")]])
def test_a_started_task_cannot_be_removed(facts: list[Any]) -> None:
    found = changes(OLD, edited(c=None), run(*facts))

    assert (("- task c: c",), ("task 'c' has started, but the file no longer contains it",)) == found


CHANGED: dict[str, Any] = {
    "number": 3, "wave": 3, "inherits": "b", "title": "other", "body": "y", "run": "make", "needs": ("b",),
    "agent": "codex", "machine": "m", "labels": ("gpu",), "mode": "tmux", "sandbox": "jail", "worktree": "own",
    "base": "main", "files": ("x",), "accounts": ("work",),
    "check": "true", "check_limit_s": 9.0, "retries": 3, "time_limit_s": 5.0,
}  # fmt: skip


@pytest.mark.parametrize("field", [name for name in Task.__struct_fields__ if name not in ("id", "line", "lines")])
@pytest.mark.parametrize("facts", [(began("a"),), done("a"), failed("a"), (began("a"), steered("retry", "a"))])
def test_no_field_of_a_started_task_can_be_edited(field: str, facts: tuple[PlanFact, ...]) -> None:
    new = edited(a={field: CHANGED[field]})

    assert (f"task 'a' has started, so its {field} cannot be changed",) == changes(OLD, new, run(*facts)).refused
    assert () == changes(OLD, new, run(began("c"))).refused


def test_every_field_that_an_edit_changes_is_named() -> None:
    refused = changes(OLD, edited(a={"body": "y", "retries": 2}), run(began("a"))).refused

    assert ("task 'a' has started, so its body, retries cannot be changed",) == refused


@pytest.mark.parametrize("field", ["agent", "mode", "worktree", "base"])
def test_the_plan_cannot_change_the_fields_it_gave_a_started_task(field: str) -> None:
    new = msgspec.structs.replace(OLD, **{field: CHANGED[field]})

    assert (f"task 'a' has started, so its {field} cannot be changed",) == changes(OLD, new, run(began("a"))).refused
    own = {"a": {field: CHANGED[field]}}
    assert () == changes(edited(**own), msgspec.structs.replace(edited(**own), **{field: "x"}), run(began("a"))).refused


def test_the_header_of_the_plan_can_be_edited() -> None:
    new = msgspec.structs.replace(
        OLD, goal="more", limit=2, advance="auto", accounts=("work",), tasks=(*OLD.tasks, task("d", 4, run="x"))
    )

    assert () == changes(OLD, new, run(began("a"))).refused
