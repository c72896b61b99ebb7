"""Plans, and their progress, as JSON objects for programs. Every field is always present. Pure."""

from typing import Any

from kasmon.model.plan.events import TaskChecked
from kasmon.model.plan.placement import machine_requirement
from kasmon.model.plan.plan import Plan, Task
from kasmon.model.plan.progress import WAITING, PlanRun, TaskState
from kasmon.model.plan.scheduler import NextSteps
from kasmon.store.plan_log import PlanLog


def plan_object(plan: Plan, run: PlanRun | None = None, ahead: NextSteps | None = None) -> dict[str, Any]:
    """Return a plan as an object for programs; with its progress if it was run."""
    return {
        "id": None if run is None else run.plan,
        "name": plan.name,
        "goal": plan.goal,
        "waves": plan.waves,
        "state": None if run is None else run.state,
        "outcome": None if run is None else run.outcome or None,
        "stopped": None if run is None else run.is_stopped,
        "asks": None if ahead is None else ahead.question or None,
        "held": None if ahead is None else ahead.held or None,
        "tasks": [_task_object(plan, task, run, ahead) for task in plan.tasks],
    }


def _task_object(plan: Plan, task: Task, run: PlanRun | None, ahead: NextSteps | None) -> dict[str, Any]:
    wanted = machine_requirement(plan, task)
    task_json: dict[str, Any] = {
        "id": task.id,
        "number": task.number,
        "title": task.title,
        "wave": task.wave,
        "needs": list(task.needs),
        "agent": WAITING.agent_for(plan, task) or None,
        "machine": None if wanted is None else wanted.machine or None,
        "labels": [] if wanted is None else list(wanted.labels),
        "accounts": [] if task.run else list(task.accounts or plan.accounts),
        "mode": task.mode or plan.mode or None,
        "sandbox": task.sandbox or None,
        "run": task.run or None,
        "check": task.check or None,
        "check_time_limit_s": task.check_limit_s,
    }
    if run is not None:
        at = run.of(task.id)
        task_json |= {
            "state": at.state.value,
            "attempt": at.attempt,
            "agent": at.agent_for(plan, task) or None,
            "machine": at.machine or task_json["machine"],
            "account": at.ran.account or None if at.ran is not None else None,
            "session": at.session or None,
            "session_name": at.name or None,
            "earlier_sessions": list(at.earlier),
            "argv": list(at.ran.argv) if at.ran is not None and at.ran.argv else None,
            "why": at.why or None,
            "checked": at.is_checked,
            "check_result": None if at.check is None else _check_object(at.check),
            "changed": at.changed,
            "branch": at.branch or None,
            "base": at.base or None,
            "workdir": at.workdir or None,
            "conflicts": list(at.conflicts),
            "took_s": at.duration_s,
            "blocked": None if ahead is None else ahead.blocked.get(task.id),
        }
    if run is not None and at.ran is not None and at.ran.agent and at.state is not TaskState.WAITING:
        task_json |= {"mode": at.ran.mode, "sandbox": at.ran.sandbox or None}
    return task_json


def _check_object(check: TaskChecked) -> dict[str, Any]:
    return {
        "ok": check.ok,
        "exit_code": check.exit_code,
        "why": check.why or None,
        "output": check.output,
        "took_s": check.took_s,
    }


def run_object(plan_log: PlanLog, *, is_run: bool, tasks: int | None) -> dict[str, Any]:
    """Return the run of the plan in *plan_log*, in short.

    *is_run*: whether a runner process is active. *tasks*: how many it has; None if its text is missing.
    """
    run = plan_log.run
    return {
        "id": plan_log.plan,
        "name": run.name,
        "file": run.file,
        "folder": run.folder,
        "state": run.state,
        "outcome": run.outcome or None,
        "running": is_run,
        "stopped": run.is_stopped,
        "done": sum(task.state.value in ("done", "skipped") for task in run.tasks.values()),
        "tasks": tasks,
        "began_at": run.began_at,
    }
