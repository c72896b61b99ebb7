"""Which shell command continues in which terminal. Pure.

A terminal keeps its folder, its exports and its history from one task to the next. One task uses it at a time; it
exists as long as a task waits for it. Agents that inherit are restarted in the same folder.
"""

from collections.abc import Callable, Mapping

from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import ACTIVE, SETTLED, PlanRun, TaskState
from kasmon.model.session import Session

T = TaskState


def terminal_of(plan: Plan, run: PlanRun, task: Task) -> str:
    """Return the session in whose terminal *task* continues; empty if it gets its own.

    Only shell commands continue, after other commands. A skipped one is replaced by its predecessor.
    """
    ancestor = task
    while ancestor.run and ancestor.inherits and not run.of(ancestor.id).agent:
        ancestor = plan.task(ancestor.inherits)
        at = run.of(ancestor.id)
        if not ancestor.run or at.agent:
            return ""
        if at.state is not T.SKIPPED:
            return at.session
    return ""


def is_unsent(plan: Plan, run: PlanRun, task: Task, session: Session) -> bool:
    """Whether *task* continues in another task's terminal, but its command was not sent: the runner died before."""
    at = run.of(task.id)
    if terminal_of(plan, run, task) != at.session or not session.exists:
        return False
    return not any(receipt.at >= at.prompts_since for receipt in session.receipts)


def is_needed(plan: Plan, run: PlanRun, task: Task) -> bool:
    """Whether a later command still needs the terminal of *task*."""
    same = [other for other in plan.tasks if other.run and other.inherits]
    if not task.run or not same:
        return False
    at = run.of(task.id)
    if at.state is not T.DONE and terminal_of(plan, run, task) != at.session:
        return False  # it is to be run again, or not at all
    by_id = {other.id: other for other in plan.tasks}
    return any(_root(by_id, other) == _root(by_id, task) and run.of(other.id).state not in SETTLED for other in same)


def user_of(plan: Plan, run: PlanRun, task: Task, is_ready: Callable[[Task], bool]) -> str:
    """Return the task that uses the terminal in which *task* would continue; empty if none does.

    Of two candidates, the first gets it, unless it is not *is_ready*.
    """
    by_id = {one.id: one for one in plan.tasks}
    root = _root(by_id, task)
    for other in plan.tasks:
        if other is not task and other.inherits and _root(by_id, other) == root:
            if run.of(other.id).state in ACTIVE:
                return other.id
            if other.number < task.number and other.inherits == task.inherits and is_ready(other):
                return other.id
    return ""


def root_of(plan: Plan, task: Task) -> Task:
    """Return the task in whose folder *task* works: itself, or the first one of its chain of `inherits`."""
    if not task.inherits:  # most do not: a plan can have thousands of tasks
        return task
    by_id = {one.id: one for one in plan.tasks}
    return by_id[_root(by_id, task)]


def _root(by_id: Mapping[str, Task], task: Task) -> str:
    while task.inherits:
        task = by_id[task.inherits]
    return task.id
