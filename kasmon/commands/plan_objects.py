"""Plans, and how far they are, as JSON objects for programs. Every field is always there. Pure."""

from typing import Any

from kasmon.model.plan.next import Ahead
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan, Task
from kasmon.store.plan import PlanBook


def plan_object(plan: Plan, run: PlanRun | None = None, ahead: Ahead | None = None) -> dict[str, Any]:
    """A plan as an object for programs; with how far it is where it was run."""
    return {
        "id": None if run is None else run.plan,
        "name": plan.name,
        "goal": plan.goal,
        "waves": plan.waves,
        "state": None if run is None else run.state,
        "outcome": None if run is None else run.outcome or None,
        "asks": None if ahead is None else ahead.asks or None,
        "tasks": [_task_object(plan, task, run, ahead) for task in plan.tasks],
    }


def _task_object(plan: Plan, task: Task, run: PlanRun | None, ahead: Ahead | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": task.id,
        "number": task.number,
        "title": task.title,
        "wave": task.wave,
        "needs": list(task.needs),
        "agent": task.agent or plan.agent or None,
        "check": task.check or None,
    }
    if run is not None:
        at = run.of(task.id)
        told |= {
            "state": at.state.value,
            "attempt": at.attempt,
            "session": at.session or None,
            "why": at.why or None,
            "checked": at.is_checked,
            "changed": at.changed,
            "branch": at.branch or None,
            "workdir": at.workdir or None,
            "took_s": at.took_s,
            "blocked": None if ahead is None else ahead.blocked.get(task.id),
        }
    return told


def run_object(book: PlanBook, *, is_run: bool) -> dict[str, Any]:
    """The plan of *book* as it was run, in short; *is_run* says whether a process runs it now."""
    run = book.run
    return {
        "id": book.plan,
        "name": run.name,
        "file": run.file,
        "folder": run.folder,
        "state": run.state,
        "outcome": run.outcome or None,
        "running": is_run,
        "began_at": run.began_at,
    }
