"""An edit of a plan that runs."""

from typing import Any

import msgspec
import pytest

from kasmon.model.plan.change import Edited, changes
from kasmon.model.plan.spec import Plan
from tests.model.plan.plans import began, done, plan, run, steered, task

OLD = plan(task("a", body="x"), task("b", needs=("a",)), task("c", run="make"))


def edited(**tasks: dict[str, Any] | None) -> Plan:
    """`OLD` with these tasks changed, or without those that are None."""
    kept = [
        msgspec.structs.replace(one, **(tasks.get(one.id) or {}))
        for one in OLD.tasks
        if tasks.get(one.id, {}) is not None
    ]
    return msgspec.structs.replace(OLD, tasks=tuple(kept))


def test_a_file_that_says_the_same_is_no_edit() -> None:
    assert Edited((), ()) == changes(OLD, OLD, run())


def test_lines_that_moved_are_no_edit() -> None:
    assert Edited(()) == changes(OLD, edited(a={"line": 90}), run())


def test_what_differs_is_said_field_by_field() -> None:
    new = msgspec.structs.replace(edited(a={"body": "y", "retries": 2}), goal="more")

    assert (
        "~ goal: '' -> 'more'",
        "~ task a: body: 'x' -> 'y'",
        "~ task a: retries: 0 -> 2",
    ) == changes(OLD, new, run()).lines


def test_added_and_taken_away_tasks_are_said() -> None:
    new = msgspec.structs.replace(OLD, tasks=(*OLD.tasks[:2], task("d", 3, title="more", run="x")))

    assert Edited(("- task c: c", "+ task d: more")) == changes(OLD, new, run())


@pytest.mark.parametrize("facts", [[began("c")], list(done("c")), [began("c"), steered("retry", "c")]])
def test_what_has_begun_cannot_be_taken_away(facts: list[Any]) -> None:
    found = changes(OLD, edited(c=None), run(*facts))

    assert (("- task c: c",), ("task 'c' has begun and is not in it any more",)) == found


@pytest.mark.parametrize("field", ["wave", "number", "inherits"])
def test_what_has_begun_keeps_its_place(field: str) -> None:
    new = edited(a={field: "b" if field == "inherits" else 3})

    assert (f"task 'a' has begun, so its {field} stays",) == changes(OLD, new, run(began("a"))).refused
    assert () == changes(OLD, new, run()).refused


def test_what_has_begun_may_get_another_body_check_and_patience() -> None:
    new = edited(a={"body": "y", "check": "true", "retries": 3, "time_limit_s": 5.0})

    found = changes(OLD, new, run(began("a")))

    assert () == found.refused
    assert 4 == len(found.lines)
