"""On which machine a task may run, and on which it does. Pure."""

from pathlib import PurePosixPath
from typing import Final, NamedTuple

import msgspec

from kasmon.errors import UsageError
from kasmon.model.plan.plan import ANY, LOCAL, Plan, Task, Worktree, host_of
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.shared_terminal import root_of

LABEL: Final = "label:"


class MachineRequirement(NamedTuple):
    """The machines that a task may run on: those that have the name, if any, and all the labels.

    This one is among them, as `LOCAL` or by its own name.
    """

    machine: str = ""
    labels: tuple[str, ...] = ()


def machine_requirement(plan: Plan, task: Task) -> MachineRequirement | None:
    """Return which machines *task* may be placed on; None if it runs here anyway, or on the host of its agent.

    A task that inherits runs where the task runs in whose folder it works. *plan* must be valid.
    """
    root = root_of(plan, task)
    if root.machine or root.labels:
        return _requirement(root.machine, root.labels)
    return None if host_of(plan, root) else _requirement(plan.machine, plan.labels)


def _requirement(machine: str, labels: tuple[str, ...]) -> MachineRequirement | None:
    if machine in ("", LOCAL) and not labels:
        return None
    return MachineRequirement("" if machine == ANY else machine, labels)


def describe_requirement(wanted: MachineRequirement) -> str:
    """Return *wanted* as words: `gpu-1`, `any machine`, `any machine with linux, gpu`."""
    return wanted.machine or "any machine" + (f" with {', '.join(wanted.labels)}" if wanted.labels else "")


def next_machine(plan: Plan, task: Task, run: PlanRun) -> MachineRequirement | None:
    """Return which machines the next attempt of *task* may be placed on; None if it runs here anyway.

    Where the task that it inherits from ran, it continues on the same one. One that began here continues in its
    worktree here.
    """
    wanted = machine_requirement(plan, task)
    if wanted is None:
        return None
    at = run.of(root_of(plan, task).id)
    if at.machine == LOCAL and PurePosixPath(at.workdir).is_absolute():
        return MachineRequirement(LOCAL)
    return MachineRequirement(at.machine) if task.inherits and at.machine else wanted


def is_elsewhere(plan: Plan, task: Task, run: PlanRun) -> bool:
    """Whether the last attempt of *task*, or the next one once that is placed, is on a registered machine."""
    return machine_requirement(plan, task) is not None and run.of(task.id).machine != LOCAL


def placed_machine(plan: Plan, task: Task, run: PlanRun) -> str:
    """Return the registered machine of the task's last attempt, or of the next one once that is placed.

    It is empty for this machine, and before the first attempt is placed.
    """
    return run.of(task.id).machine if is_elsewhere(plan, task, run) else ""


def worktree_of(plan: Plan, task: Task) -> Worktree:
    """Return where *task* works: in the worktree of the task that it inherits from; elsewhere in its own."""
    return "own" if machine_requirement(plan, task) is not None else root_of(plan, task).worktree or plan.worktree


def with_default_machine(plan: Plan, on: str) -> Plan:
    """Return *plan* with the machine of `--on`: a name, `any`, or `label:LABEL,LABEL`, for tasks that name none.

    Raises:
        UsageError: if it names no label.
    """
    if not on:
        return plan
    if not on.startswith(LABEL):
        return msgspec.structs.replace(plan, machine=on, labels=())
    labels = tuple(label.strip() for label in on.removeprefix(LABEL).split(",") if label.strip())
    if not labels:
        raise UsageError(f"{on!r} names no label.", hint="Write a machine's name, `any`, or `label:LABEL,LABEL`.")
    return msgspec.structs.replace(plan, machine="", labels=labels)
