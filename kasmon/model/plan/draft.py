"""From what a file says to a plan that holds together: needs that exist, no circles, waves without gaps."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from kasmon.model.plan.spec import Fault, Plan, Task, host_of


class Draft(NamedTuple):
    """A plan as its file says it; its tasks' waves are 0 where the file gives none."""

    plan: Plan
    faults: tuple[Fault, ...] = ()
    """What its reader found."""
    tells_gaps: bool = False
    """Whether waves that have no task are among it."""


def settled(draft: Draft, agents: Sequence[str] | None = None) -> tuple[Plan, tuple[Fault, ...]]:
    """The plan of *draft* with all its waves, and everything that is wrong with it, by line.

    Where anything is wrong the plan is only good to be shown.

    Args:
        draft: what a reader made of a file.
        agents: the profiles that there are; None where nobody knows.
    """
    tasks = draft.plan.tasks
    faults = [*draft.faults, *_doubles(tasks), *_needs(tasks), *_agents(draft.plan, agents), *_elsewhere(draft.plan)]
    if not tasks and not draft.faults:
        faults.append(Fault(line=0, why="it has no task"))
    known = {task.id: task for task in tasks}
    if circle := _circle(known):
        words = " -> ".join(repr(id_) for id_ in circle)
        faults.append(Fault(line=known[circle[0]].line, why=f"task {circle[0]!r} waits for itself: {words}"))
    gives_waves = any(task.wave for task in tasks)
    if gives_waves:
        faults += [*([] if draft.tells_gaps else _gaps(tasks)), *_waves(tasks, known)]
    elif not circle:
        levels = _levels(known)
        tasks = tuple(msgspec.structs.replace(task, wave=levels[task.id]) for task in tasks)
    plan = msgspec.structs.replace(draft.plan, tasks=tasks, gives_waves=gives_waves)
    return plan, tuple(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _doubles(tasks: Sequence[Task]) -> list[Fault]:
    first: dict[str, Task] = {}
    faults = []
    for task in tasks:
        other = first.setdefault(task.id, task)
        if other is not task:
            faults.append(Fault(line=task.line, why=f"there is a task {task.id!r} already, on line {other.line}"))
    return faults


def _needs(tasks: Sequence[Task]) -> list[Fault]:
    known = {task.id for task in tasks}
    return [
        Fault(line=task.line, why=f"task {task.id!r} {verb} {need!r}, and there is no such task")
        for task in tasks
        for verb, wanted in (("needs", task.needs), ("inherits", (task.inherits,) if task.inherits else ()))
        for need in wanted
        if need not in known
    ]


def _agents(plan: Plan, agents: Sequence[str] | None) -> list[Fault]:
    if agents is None:
        return []
    allowed = ", ".join(sorted(agents))
    wrong = [
        Fault(line=task.line, why=f"task {task.id!r} wants the agent {name!r}; there are {allowed}")
        for task in plan.tasks
        if (name := task.agent.partition("@")[0]) and name not in agents
    ]
    if plan.agent and plan.agent.partition("@")[0] not in agents:
        wrong.append(Fault(line=1, why=f"the plan wants the agent {plan.agent!r}; there are {allowed}"))
    return wrong


def _elsewhere(plan: Plan) -> list[Fault]:
    """What a task wants that there is on no other machine."""
    known = {task.id: task for task in plan.tasks}
    faults = []
    for task in plan.tasks:
        host, before = host_of(plan, task), known.get(task.inherits)
        if before is not None and (host or (where := host_of(plan, before))):
            runs = f"runs on {host!r}" if host else f"is to go on from task {before.id!r}, which runs on {where!r}"
            why = f"task {task.id!r} {runs}: nothing is inherited from or to another machine; `needs` waits for it"
            faults.append(Fault(line=task.line, why=why))
        if host and task.worktree in ("own", "shared"):
            why = f"task {task.id!r} runs on {host!r}, in the home folder there: it gets no worktree"
            faults.append(Fault(line=task.line, why=why))
        if host and not task.run and plan.done_by == "said":
            why = f"task {task.id!r} runs on {host!r}, where no agent can say that it is done (done_by)"
            faults.append(Fault(line=task.line, why=why))
    return faults


def _gaps(tasks: Sequence[Task]) -> list[Fault]:
    faults = []
    numbers = {task.wave for task in tasks if task.wave}
    for number in range(1, max(numbers, default=0)):
        if number not in numbers:
            after = next(task for task in tasks if task.wave > number)
            faults.append(Fault(line=after.line, why=f"wave {number} has no task, and there is a wave {after.wave}"))
            break
    return faults


def _waves(tasks: Sequence[Task], known: Mapping[str, Task]) -> list[Fault]:
    faults = []
    for task in tasks:
        if not task.wave:
            faults.append(Fault(line=task.line, why=f"task {task.id!r} gives no wave, and others do"))
        for need in (*task.needs, task.inherits):
            other = known.get(need)
            if other is not None and task.wave and other.wave >= task.wave and other is not task:
                where = "the same wave" if other.wave == task.wave else f"wave {other.wave}, which is later"
                faults.append(Fault(line=task.line, why=f"task {task.id!r} needs {need!r} of {where}"))
    return faults


def before(task: Task) -> tuple[str, ...]:
    """The tasks that *task* itself names as done before it."""
    return (*task.needs, task.inherits) if task.inherits and task.inherits not in task.needs else task.needs


def _circle(known: Mapping[str, Task]) -> tuple[str, ...]:
    """Tasks that wait for each other, the first one again at the end; empty where there are none."""
    done: set[str] = set()
    for start in known:
        path: dict[str, None] = {}
        stack = [(start, False)]
        while stack:
            id_, is_left = stack.pop()
            if is_left:
                del path[id_]
                done.add(id_)
            elif id_ in path:
                walked = list(path)
                return (*walked[walked.index(id_) :], id_)
            elif id_ not in done:
                path[id_] = None
                stack.append((id_, True))
                stack += [(need, False) for need in before(known[id_]) if need in known]
    return ()


def _levels(known: Mapping[str, Task]) -> dict[str, int]:
    """Task -> the wave in which it can be: one behind the last of what it needs. There is no circle."""
    levels: dict[str, int] = {}
    for start in known:
        stack = [start]
        while stack:
            id_ = stack[-1]
            missing = [need for need in before(known[id_]) if need in known and need not in levels]
            if missing:
                stack += missing
            else:
                stack.pop()
                levels[id_] = 1 + max((levels[need] for need in before(known[id_]) if need in known), default=0)
    return levels
