"""An edit of a plan that runs: what differs, in words, and what of it cannot be taken over."""

from typing import NamedTuple

from kasmon.model.plan.run import PlanRun, TaskState
from kasmon.model.plan.spec import Plan, Task


class Edited(NamedTuple):
    """How a plan's new text differs from what runs."""

    lines: tuple[str, ...]
    """`+` added, `-` taken away, `~` changed; empty where nothing is."""
    refused: tuple[str, ...] = ()
    """Why it cannot be taken over."""


def changes(old: Plan, new: Plan, run: PlanRun) -> Edited:
    """What *new* changes of *old*, of which *run* has been done."""
    lines, refused = [], []
    for field in old.__struct_fields__:
        was, now = getattr(old, field), getattr(new, field)
        if field != "tasks" and was != now:
            lines.append(f"~ {field}: {was!r} -> {now!r}")
    before, after = ({task.id: task for task in plan.tasks} for plan in (old, new))
    for id_, task in before.items():
        begun = run.of(id_).state is not TaskState.WAITING or run.of(id_).attempt > 0
        if id_ not in after:
            lines.append(f"- task {id_}: {task.title}")
            if begun:
                refused.append(f"task {id_!r} has begun and is not in it any more")
        elif differing := _differing(task, after[id_]):
            lines += [f"~ task {id_}: {field}: {was!r} -> {now!r}" for field, was, now in differing]
            fixed = [field for field, _, _ in differing if field in ("number", "wave", "inherits")]
            if begun and fixed:
                refused.append(f"task {id_!r} has begun, so its {fixed[0]} stays")
    lines += [f"+ task {id_}: {task.title}" for id_, task in after.items() if id_ not in before]
    return Edited(tuple(lines), tuple(refused))


def _differing(was: Task, now: Task) -> list[tuple[str, object, object]]:
    return [
        (field, getattr(was, field), getattr(now, field))
        for field in was.__struct_fields__
        if field != "line" and getattr(was, field) != getattr(now, field)
    ]
