"""From a parsed file to a valid plan: existing needs, no cycles, waves without gaps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kasmon.model.plan.placement import machine_requirement, worktree_of
from kasmon.model.plan.plan import Plan, PlanFault, Task, host_of


class PlanDraft(NamedTuple):
    """A plan as parsed from its file; its tasks' waves are 0 where the file gives none."""

    plan: Plan
    faults: tuple[PlanFault, ...] = ()
    reports_gaps: bool = False
    """Whether they include waves without tasks."""


def validate(draft: PlanDraft, agents: Sequence[str] | None = None) -> tuple[Plan, tuple[PlanFault, ...]]:
    """Return the plan of *draft* with all its waves, and all its faults, by line.

    A plan with faults is only for display.

    Args:
        draft: the result of a parser.
        agents: the existing profiles; None if unknown.
    """
    tasks = draft.plan.tasks
    missing = _needs(tasks)
    faults = [*draft.faults, *_doubles(tasks), *missing, *_agents(draft.plan, agents), *_elsewhere(draft.plan)]
    faults += _bases(draft.plan)
    if not tasks and not draft.faults:
        faults.append(PlanFault(line=0, why="it has no task"))
    known = {task.id: task for task in tasks}
    if circle := _circle(known):
        cycle = " -> ".join(repr(id_) for id_ in circle)
        first = known[circle[0]]
        faults.append(_fault(first, _field_of_need(first, circle[1]), f"waits for itself: {cycle}"))
    if not missing and not circle:  # a task's machine is that of the one it inherits from
        faults += [*_machines(draft.plan), *_accounts(draft.plan)]
    gives_waves = any(task.wave for task in tasks)
    if gives_waves:
        faults += [*([] if draft.reports_gaps else _gaps(tasks)), *_waves(tasks, known)]
    elif not circle:
        levels = _levels(known)
        tasks = tuple(msgspec.structs.replace(task, wave=levels[task.id]) for task in tasks)
    plan = msgspec.structs.replace(draft.plan, tasks=tasks, gives_waves=gives_waves)
    return plan, tuple(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _fault(task: Task, field: str, why: str) -> PlanFault:
    """Return the fault of *task* at its *field*: the task, then *why*."""
    return PlanFault(line=task.line_of(field), why=f"task {task.id!r} {why}")


def _doubles(tasks: Sequence[Task]) -> Iterator[PlanFault]:
    first: dict[str, Task] = {}
    for task in tasks:
        if (other := first.setdefault(task.id, task)) is not task:
            yield _fault(task, "id", f"is already defined on line {other.line_of('id')}")


def _needs(tasks: Sequence[Task]) -> list[PlanFault]:
    known = {task.id for task in tasks}
    return [
        _fault(task, verb, f"{verb} {need!r}, but there is no such task")
        for task in tasks
        for verb, wanted in (("needs", task.needs), ("inherits", (task.inherits,) if task.inherits else ()))
        for need in wanted
        if need not in known
    ]


def _agents(plan: Plan, agents: Sequence[str] | None) -> Iterator[PlanFault]:
    if agents is None:
        return
    allowed = ", ".join(sorted(agents))
    for task in plan.tasks:
        if (name := task.agent.partition("@")[0]) and name not in agents:
            yield _fault(task, "agent", f"uses the unknown agent {name!r}; available: {allowed}")
    if plan.agent and plan.agent.partition("@")[0] not in agents:
        why = f"the plan uses the unknown agent {plan.agent!r}; available: {allowed}"
        yield PlanFault(line=dict(plan.lines).get("agent", 1), why=why)


def _elsewhere(plan: Plan) -> Iterator[PlanFault]:
    """Yield faults for features that do not work on another machine."""
    known = {task.id: task for task in plan.tasks}
    for task in plan.tasks:
        host, before = host_of(plan, task), known.get(task.inherits)
        if before is not None and (host or (where := host_of(plan, before))):
            runs = f"runs on {host!r}" if host else f"should continue from task {before.id!r}, which runs on {where!r}"
            yield _fault(task, "inherits", f"{runs}: `inherits` does not work across machines; use `needs`")
        if host and task.worktree in ("own", "shared"):
            why = f"runs on {host!r}, in the home folder there, so it can have no worktree"
            yield _fault(task, "worktree", why)
        if host and not task.run and plan.done_by == "said":
            why = f"runs on {host!r}, where an agent cannot report that it is done (done_by)"
            yield _fault(task, "agent", why)


def _machines(plan: Plan) -> Iterator[PlanFault]:
    """Yield faults for machines that contradict each other, or where the task works."""
    if plan.machine and plan.labels:
        line = dict(plan.lines).get("labels", 0)
        yield PlanFault(line=line, why=f"the plan names the machine {plan.machine!r} and labels; name one")
    for task in plan.tasks:
        wanted, kind = machine_requirement(plan, task), task.worktree or plan.worktree
        field = "machine" if task.machine else "labels"
        if task.machine and task.labels:
            yield _fault(task, "labels", f"names the machine {task.machine!r} and labels; name one of them")
        elif task.inherits and (task.machine or task.labels):
            if machine_requirement(plan, msgspec.structs.replace(task, inherits="")) != wanted:
                yield _fault(task, field, f"names another machine than {task.inherits!r}, in whose folder it continues")
        elif (task.machine or task.labels) and (host := host_of(plan, task)):
            yield _fault(task, field, f"names a machine, but its agent runs on the host {host!r}; name one of them")
        if wanted is not None and (task.worktree in ("shared", "folder") or kind == "folder"):
            why = f"works in a worktree of its own on another machine, so it cannot work in {kind!r}"
            yield _fault(task, "worktree", why)


def _accounts(plan: Plan) -> Iterator[PlanFault]:
    """Yield faults for accounts that no agent here would use."""
    if plan.spread and not (plan.accounts or any(task.accounts for task in plan.tasks)):
        yield PlanFault(line=dict(plan.lines).get("spread", 0), why="the plan has a spread, but no accounts")
    for task in plan.tasks:
        if task.accounts and task.run:
            yield _fault(task, "accounts", "is a shell command, which uses no account")
        elif task.accounts and (host_of(plan, task) or machine_requirement(plan, task) is not None):
            why = "may run on another machine, with the log-in there; accounts are for tasks here"
            yield _fault(task, "accounts", why)


def _bases(plan: Plan) -> Iterator[PlanFault]:
    """Yield faults for a `base` without a worktree that starts from it."""
    for task in plan.tasks:
        if task.base and (task.inherits or worktree_of(plan, task) != "own"):
            why = 'has a base, but no worktree of its own to start from it (worktree = "own")'
            yield _fault(task, "base", why)


def _gaps(tasks: Sequence[Task]) -> Iterator[PlanFault]:
    numbers = {task.wave for task in tasks if task.wave}
    for number in range(1, max(numbers, default=0)):
        if number not in numbers:
            after = next(task for task in tasks if task.wave > number)
            why = f"wave {number} has no task, but there is a wave {after.wave}"
            yield PlanFault(line=after.line_of("wave"), why=why)
            return


def _waves(tasks: Sequence[Task], by_id: Mapping[str, Task]) -> Iterator[PlanFault]:
    for task in tasks:
        if not task.wave:
            yield PlanFault(line=task.line, why=f"task {task.id!r} has no wave, but other tasks have one")
        for need in (*task.needs, task.inherits):
            other = by_id.get(need)
            if other is not None and task.wave and other.wave >= task.wave and other is not task:
                where = "the same wave" if other.wave == task.wave else f"wave {other.wave}, which is later"
                yield _fault(task, _field_of_need(task, need), f"needs {need!r} of {where}")


def _field_of_need(task: Task, need: str) -> str:
    return "needs" if need in task.needs else "inherits"


def named_needs(task: Task) -> tuple[str, ...]:
    """Return the tasks that *task* itself names as its predecessors."""
    return (*task.needs, task.inherits) if task.inherits and task.inherits not in task.needs else task.needs


def _circle(by_id: Mapping[str, Task]) -> tuple[str, ...]:
    """Return tasks that wait for each other, the first one again at the end; empty if there are none."""
    done: set[str] = set()
    for start in by_id:
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
                stack += [(need, False) for need in named_needs(by_id[id_]) if need in by_id]
    return ()


def _levels(by_id: Mapping[str, Task]) -> dict[str, int]:
    """Return task -> its earliest wave: one behind the last task that it needs. There must be no cycle."""
    levels: dict[str, int] = {}
    for start in by_id:
        stack = [start]
        while stack:
            id_ = stack[-1]
            missing = [need for need in named_needs(by_id[id_]) if need in by_id and need not in levels]
            if missing:
                stack += missing
            else:
                stack.pop()
                levels[id_] = 1 + max((levels[need] for need in named_needs(by_id[id_]) if need in by_id), default=0)
    return levels
