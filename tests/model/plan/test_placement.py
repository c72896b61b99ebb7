"""Where tasks run."""

import pytest

from kasmon.errors import UsageError
from kasmon.model.plan.diff import changes
from kasmon.model.plan.events import TaskPlaced
from kasmon.model.plan.parser import parse_for_display, read
from kasmon.model.plan.placement import (
    MachineRequirement,
    is_elsewhere,
    machine_requirement,
    next_machine,
    placed_machine,
    worktree_of,
)
from kasmon.model.plan.plan import Plan
from tests.support.sample_plans import began, done, failed, placed, plan, run, task


def where(plan: Plan, id_: str) -> tuple[str, ...] | None:
    wanted = machine_requirement(plan, plan.task(id_))
    return None if wanted is None else (wanted.machine, *wanted.labels)


def test_a_task_runs_on_its_machine_else_on_that_of_its_plan() -> None:
    named = plan(
        task("here", machine="local"), task("host", agent="claude@box"), task("default"), task("any", machine="any"),
        task("labels", labels=("gpu",)), task("more", inherits="labels"), machine="m",
    )  # fmt: skip

    assert [None, None, ("m",), ("",), ("", "gpu"), ("", "gpu")] == [where(named, each.id) for each in named.tasks]
    assert ["", "", "own", "own", "own", "own"] == [worktree_of(named, each) for each in named.tasks]
    assert [None, "shared"] == [where(plan(task("a")), "a"), worktree_of(plan(task("a"), worktree="shared"), task("a"))]


def test_a_task_is_placed_from_the_choice_on_and_no_longer_once_it_runs_here() -> None:
    placed = TaskPlaced(at=1, task="a", attempt=1, machine="m")
    there, here = plan(task("a", machine="any")), plan(task("a"))

    assert ["", "m", "m"] == [
        placed_machine(there, there.tasks[0], run(*at)) for at in ([], [placed], [placed, *done("a")])
    ]
    assert "" == placed_machine(here, here.tasks[0], run(placed))


def test_a_task_that_was_placed_here_and_began_is_placed_here_again() -> None:
    of = plan(task("a", machine="any"), task("b", inherits="a"))
    here, work = placed("a", machine="local"), began("a", workdir="/p/trees/a")
    elsewhere, there = placed("a"), began("a", workdir="m:/p/a")
    again = (elsewhere, there, *failed("a")[1:], placed("a", 2, "local"))
    runs = {"placed": run(here), "began": run(here, work), "moved": run(*again)}

    assert {"placed": False, "began": False, "moved": False} == {
        name: is_elsewhere(of, of.tasks[0], at) for name, at in runs.items()
    }
    assert is_elsewhere(of, of.tasks[0], run(elsewhere, there))
    assert "" == placed_machine(of, of.tasks[0], runs["began"])
    assert {"placed": "", "began": "local", "moved": ""} == {
        name: (next_machine(of, of.tasks[0], at) or MachineRequirement("none")).machine for name, at in runs.items()
    }
    assert ["local", "m"] == [
        (next_machine(of, of.tasks[1], at) or MachineRequirement()).machine
        for at in (runs["began"], run(elsewhere, there))
    ]


def test_a_default_machine_replaces_that_of_the_file_and_has_the_same_faults() -> None:
    text = 'labels = ["slow"]\n[[task]]\nrun = "a"\n[[task]]\nrun = "b"\nmachine = "n"\n'
    found = {on: read(text, "p.toml", None, on) for on in ("", "m", "any", "label:gpu, linux")}

    assert {
        "": ("", "slow"), "m": ("m",), "any": ("",), "label:gpu, linux": ("", "gpu", "linux"),
    } == {on: where(each, "1") for on, each in found.items()}  # fmt: skip
    assert {("n",)} == {where(each, "2") for each in found.values()}
    [fault] = parse_for_display('worktree = "folder"\n[[task]]\nrun = "a"\n', "p.toml", None, "any")[1]
    assert "cannot work in 'folder'" in fault.why
    with pytest.raises(UsageError, match="'label: ,' names no label"):
        read(text, "p.toml", None, "label: ,")


def test_the_machine_of_a_task_that_has_begun_stays() -> None:
    old, new = plan(task("a"), machine="m"), plan(task("a"), labels=("gpu",))

    assert ("task 'a' has started, so its machine cannot be changed",) == changes(old, new, run(*done("a"))).refused
    assert () == changes(old, new, run()).refused
    assert MachineRequirement("", ("gpu",)) == machine_requirement(new, new.tasks[0])
