"""An edit of a running plan: the differences as text, and those that cannot be applied."""

from typing import Final, NamedTuple

from kasmon.model.plan.placement import machine_requirement
from kasmon.model.plan.plan import Plan, Task, agent_of
from kasmon.model.plan.progress import PlanRun, TaskState

NOT_SAID: Final = frozenset({"tasks", "line", "lines", "warnings", "gives_waves"})
"""Fields of plans and tasks that are compared otherwise, or only name a position in the file."""


class PlanDiff(NamedTuple):
    """The difference between a plan's new text and the running one."""

    lines: tuple[str, ...]
    """`+` added, `-` removed, `~` changed; empty if nothing is."""
    refused: tuple[str, ...] = ()
    """Why it cannot be applied: a started task must stay as it ran, so that the plan shows what really ran."""


def changes(old: Plan, new: Plan, run: PlanRun) -> PlanDiff:
    """Return what *new* changes of *old*, given the progress *run*."""
    lines, refused = [], []
    for field in old.__struct_fields__:
        was, now = getattr(old, field), getattr(new, field)
        if field not in NOT_SAID and was != now:
            lines.append(f"~ {field}: {was!r} -> {now!r}")
    before, after = ({task.id: task for task in plan.tasks} for plan in (old, new))
    for id_, task in before.items():
        begun = run.of(id_).state is not TaskState.WAITING or run.of(id_).attempt > 0
        if id_ not in after:
            lines.append(f"- task {id_}: {task.title}")
            if begun:
                refused.append(f"task {id_!r} has started, but the file no longer contains it")
            continue
        differing = _list_differences(task, after[id_])
        lines += [f"~ task {id_}: {field}: {was!r} -> {now!r}" for field, was, now in differing]
        if begun and (fixed := [field for field, _, _ in differing] or _list_inherited(old, task, new, after[id_])):
            refused.append(f"task {id_!r} has started, so its {', '.join(fixed)} cannot be changed")
    lines += [f"+ task {id_}: {task.title}" for id_, task in after.items() if id_ not in before]
    return PlanDiff(tuple(lines), tuple(refused))


def _list_inherited(old: Plan, was: Task, new: Plan, now: Task) -> list[str]:
    """Return the fields of a task that change with the plan's defaults, where the task does not set them."""
    given = {
        "agent": (agent_of(old, was), agent_of(new, now)),
        "machine": (machine_requirement(old, was), machine_requirement(new, now)),
        "mode": (was.mode or old.mode, now.mode or new.mode),
        "worktree": (was.worktree or old.worktree, now.worktree or new.worktree),
        "base": (was.base or old.base, now.base or new.base),
    }
    return [field for field, (before, after) in given.items() if before != after]


def _list_differences(was: Task, now: Task) -> list[tuple[str, object, object]]:
    return [
        (field, getattr(was, field), getattr(now, field))
        for field in was.__struct_fields__
        if field not in NOT_SAID and getattr(was, field) != getattr(now, field)
    ]
