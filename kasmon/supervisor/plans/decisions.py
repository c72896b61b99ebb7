"""Log the user's decisions about a running plan for its runner, and start a runner if there is none."""

from pathlib import Path

from kasmon.config import Config
from kasmon.errors import RefusedError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.plan.diff import changes
from kasmon.model.plan.events import PlanAction
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.limits.agents import check_is_person
from kasmon.supervisor.plans import approval, start
from kasmon.supervisor.plans.sandboxes import must_be_able
from kasmon.supervisor.plans.view import PlanView, apply_config, approved_plan, read_view


def record_decision(
    paths: Paths, config: Config, fleet: Fleet, requested: str, decision: PlanAction, task: str = "", agent: str = ""
) -> PlanView:
    """Log *decision* for the plan *requested*, make sure that it has a runner, and return its view. Blocks.

    Args:
        requested: the plan's id, or its file.
        task: its id or its number, if the decision is about one.
        agent: for `replace`.

    Raises:
        PlanNotFoundError: if there is no such plan.
        RefusedError: if it has ended, or the decision is not possible now; or if an agent calls this.
        UsageError: if it has no such task, or there is no such agent.
        UnavailableError: if the decision cannot be logged.
    """
    check_is_person(paths, "decide about a plan")
    plan_log = start.find_plan(paths, requested)
    _check_not_ended(plan_log)
    view = read_view(plan_log, fleet, config)
    task = _id_of(view.plan, task) if task else ""
    if agent and agent not in config.agents:
        raise UsageError(f"there is no agent {agent!r}.", hint=f"Available: {', '.join(sorted(config.agents))}.")
    if why := approval.refusal(view.plan, view.run, decision, task):
        raise RefusedError(
            f"plan {plan_log.plan!r}: {why}.", hint=f"`kasmon plan show {plan_log.plan}` shows its state."
        )
    plan_log.record_decision(decision, task, agent)
    start.run(paths, plan_log)
    plan_log.more()
    return view._replace(run=plan_log.run)


def apply_edit(paths: Paths, config: Config, plan: str, digest: str) -> None:
    """Apply the edited file of *plan*, if its text still has the *digest* that was shown. Blocks.

    A plan that never ran, identified by its file's path, is started.

    Raises:
        PlanNotFoundError: if there is no such plan, or its file is gone.
        PlanFaultyError: if the file has faults.
        RefusedError: if the plan has ended, the file changed since it was shown, or removes what has begun; or if an
            agent calls this.
        KasmonError: if a task cannot have its sandbox.
        UnavailableError: if it cannot be logged.
    """
    check_is_person(paths, "change a plan")
    if "/" in plan:
        _begin(paths, config, Path(plan), digest)
        return
    plan_log = start.find_plan(paths, plan)
    _check_not_ended(plan_log)
    file = Path(plan_log.run.file)
    text = _read_shown(file, digest)
    new, old = read(text, file.name, tuple(config.agents), plan_log.run.on), approved_plan(plan_log)
    must_be_able(paths, config, new, Path(plan_log.run.folder))
    plan_log.more()  # a task may have begun meanwhile
    _check_not_ended(plan_log)
    if refused := changes(old, new, plan_log.run).refused:
        raise RefusedError(f"the edit of {plan_log.plan!r} cannot be applied: {'; '.join(refused)}.")
    start.apply_edit(plan_log, text)
    start.run(paths, plan_log)


def _begin(paths: Paths, config: Config, file: Path, digest: str) -> None:
    """Start the plan in *file*, if its text still has the *digest* that was shown with its commands."""
    text = _read_shown(file, digest)
    plan = read(text, file.name, tuple(config.agents))
    must_be_able(paths, config, plan, file.parent)
    approval.check_repository(plan, file.parent, start.next_id(paths, plan))
    approval.ask_machines(paths, config, apply_config(plan, config), file.parent)
    start.run(paths, start.store_approved_plan(paths, plan, text, file, file.parent, headless=False))


def _read_shown(file: Path, digest: str) -> str:
    text = start.text_of(file)
    if start.digest(text) != digest:
        raise RefusedError(f"{str(file)!r} has been edited since it was shown.", hint="Review it again.")
    return text


def _check_not_ended(plan_log: PlanLog) -> None:
    if plan_log.run.state == "ended":
        raise RefusedError(f"plan {plan_log.plan!r} has ended: {plan_log.run.outcome}.", hint="Run its file again.")


def _id_of(plan: Plan, requested: str) -> str:
    """Return the id of the task that *requested* names, by its id or else by its number."""
    for task in (*(task for task in plan.tasks if task.id == requested), *plan.tasks):
        if requested in (task.id, str(task.number)):
            return task.id
    ids = ", ".join(task.id for task in plan.tasks)
    raise UsageError(f"the plan has no task {requested!r}.", hint=f"Its tasks: {ids}.")
