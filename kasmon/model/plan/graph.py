"""A plan as a graph of rails, one line per task, drawn for any terminal."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kasmon.model.formatting import count_text
from kasmon.model.plan.placement import describe_requirement, machine_requirement
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.validation import named_needs

MOST_RAILS: Final = 16
"""Beyond this number, dependencies are only listed, not drawn."""
NODE: Final = "●"
_ASCII: Final = str.maketrans("│─├┤┼┴╰╯●", "|-++++++*")


class GraphLine(NamedTuple):
    """One line: a wave's heading (no task), or a task with the rails in front of it."""

    rails: str
    task: Task | None
    wave: int = 0


def graph(plan: Plan) -> list[GraphLine]:
    """Return the lines of *plan*, waves in order; a rail leads from each task to its dependents."""
    waiting = {task.id: 0 for task in plan.tasks}
    for task in plan.tasks:
        for need in named_needs(task):
            if need in waiting:
                waiting[need] += 1
    lines: list[GraphLine] = []
    rails: list[str | None] = []
    wave = 0
    for task in sorted(plan.tasks, key=lambda task: (task.wave, task.number)):
        if task.wave != wave:
            wave = task.wave
            lines.append(GraphLine("".join("│ " if rail else "  " for rail in rails).rstrip(), None, wave))
        lines.append(GraphLine(_row(task, rails, waiting), task, wave))
    width = max((len(line.rails) for line in lines), default=0)
    return [line._replace(rails=line.rails.ljust(width)) for line in lines]


def text(plan: Plan, states: Mapping[str, str] | None = None, *, utf8: bool = True) -> list[str]:
    """Return *plan* as lines for a terminal.

    Args:
        plan: any parsed plan.
        states: task id -> its state, if it runs.
        utf8: False draws with ASCII alone.
    """
    lines = [f"{plan.name}: {count_text(len(plan.tasks), 'task')} in {count_text(plan.waves, 'wave')}"]
    lines += [f"{what}: {value}" for what, value in (("goal", plan.goal), ("architecture", plan.architecture)) if value]
    for drawn in graph(plan):
        rails = drawn.rails
        if drawn.task is None:
            lines.append(f"{rails} wave {drawn.wave}")
        else:
            lines.append(f"{rails} {label(drawn.task, plan, (states or {}).get(drawn.task.id, ''))}")
    return lines if utf8 else [line.translate(_ASCII) for line in lines]


def label(task: Task, plan: Plan, state: str = "") -> str:
    """Return the text behind a task's rails."""
    name = task.id if task.id == str(task.number) else f"{task.number} {task.id}"
    label_parts = [name, task.title if task.title != task.id else ""]
    agent = task.agent or ("shell" if task.run else plan.agent)
    wanted = machine_requirement(plan, task)
    notes = [
        f"[{agent}]" if agent else "",
        f"on {describe_requirement(wanted)}" if wanted is not None else "",
        f"{state}" if state else "",
        f"needs {', '.join(task.needs)}" if task.needs else "",
        f"continues from {task.inherits}" if task.inherits else "",
        "has a check" if task.check else "",
    ]
    return "  ".join(" ".join(part for part in parts if part) for parts in (label_parts, notes) if any(parts))


def _row(task: Task, rails: list[str | None], waiting: dict[str, int]) -> str:
    """Return the rails on *task*'s line; update *rails* and *waiting* to the state behind it."""
    needed = [index for index, held in enumerate(rails) if held is not None and held in named_needs(task)]
    ending = set()
    for index in needed:
        held = rails[index]
        if held is not None:
            waiting[held] -= 1
            if not waiting[held]:
                ending.add(index)
    if ending:
        node = min(ending)
    elif None in rails:
        node = rails.index(None)
    else:
        node = len(rails)
    row = _render_line(rails, node, needed, ending)
    for index in ending:
        rails[index] = None
    if waiting[task.id] and node < MOST_RAILS:
        rails.extend([None] * (node + 1 - len(rails)))
        rails[node] = task.id
    while rails and rails[-1] is None:
        rails.pop()
    return row


def _render_line(rails: Sequence[str | None], node: int, needed: Sequence[int], ending: set[int]) -> str:
    touched = [node, *needed]
    first, last = min(touched), max(touched)
    cells = []
    for index in range(max(len(rails), node + 1)):
        is_held = index < len(rails) and rails[index] is not None
        is_between = first < index < last
        if index == node:
            cell = NODE
        elif index in needed and index in ending:
            cell = "┴" if is_between else "╯" if index == last else "╰"
        elif index in needed:
            cell = "┼" if is_between else "┤" if index == last else "├"
        elif is_held:
            cell = "┼" if is_between else "│"
        else:
            cell = "─" if is_between else " "
        cells.append(cell + ("─" if first <= index < last else " "))
    return "".join(cells).rstrip()
