"""Log the user's decisions about a running plan for its runner, and start a runner if there is none."""

from pathlib import Path

from kasmon.config import Config
from kasmon.errors import RefusedError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.plan.diff import changes
from kasmon.model.plan.events import Deed
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans import approval, start
from kasmon.supervisor.plans.sandboxes import must_be_able
from kasmon.supervisor.plans.view import PlanView, see


def steer(
    places: Paths, config: Config, fleet: Fleet, wanted: str, deed: Deed, task: str = "", agent: str = ""
) -> PlanView:
    """Log *deed* for the plan *wanted*, make sure that it has a runner, and return its view. Blocks.

    Args:
        places, config, fleet: of this kasmon, as they are now.
        wanted: the plan's id, or its file.
        deed: the decision.
        task: its id or its number, if the decision is about one.
        agent: for `replace`.

    Raises:
        PlanNotFoundError: if there is no such plan.
        RefusedError: if it has ended, or the decision is not possible now.
        UsageError: if it has no such task, or there is no such agent.
        UnavailableError: if the decision cannot be logged.
    """
    book = start.found(places, wanted)
    _check_goes_on(book)
    seen = see(book, fleet, config)
    task = _id_of(seen.plan, task) if task else ""
    if agent and agent not in config.agents:
        raise UsageError(f"there is no agent {agent!r}.", hint=f"Available: {', '.join(sorted(config.agents))}.")
    if why := approval.refusal(seen.plan, seen.run, deed, task):
        raise RefusedError(f"plan {book.plan!r}: {why}.", hint=f"`kasmon plan show {book.plan}` shows its state.")
    book.steer(deed, task, agent)
    start.run(places, book)
    book.more()
    return seen._replace(run=book.run)


def take_edit(places: Paths, config: Config, plan: str, digest: str) -> None:
    """Apply the edited file of *plan*, if its text still has the *digest* that was shown. Blocks.

    A plan that never ran, identified by its file's path, is started.

    Raises:
        PlanNotFoundError: if there is no such plan, or its file is gone.
        PlanFaultyError: if the file has faults.
        RefusedError: if the plan has ended, the file changed since it was shown, or removes what has begun.
        KasmonError: if a task cannot have its sandbox.
        UnavailableError: if it cannot be logged.
    """
    if "/" in plan:
        _begin(places, config, Path(plan), digest)
        return
    book = start.found(places, plan)
    _check_goes_on(book)
    file = Path(book.run.file)
    text = start.text_of(file)
    if start.digest(text) != digest:
        raise RefusedError(f"{str(file)!r} has been edited since it was shown.", hint="Review it again.")
    new, old = read(text, file.name, tuple(config.agents)), read(book.agreed.read_text("utf-8"), file.name)
    refused = changes(old, new, book.run).refused
    if refused:
        raise RefusedError(f"the edit of {book.plan!r} cannot be applied: {'; '.join(refused)}.")
    must_be_able(places, config, new, Path(book.run.folder))
    start.apply_edit(book, text)
    start.run(places, book)


def _begin(places: Paths, config: Config, file: Path, digest: str) -> None:
    """Start the plan in *file*, if its text still has the *digest* that was shown with its commands."""
    text = start.text_of(file)
    if start.digest(text) != digest:
        raise RefusedError(f"{str(file)!r} has been edited since it was shown.", hint="Review it again.")
    plan = read(text, file.name, tuple(config.agents))
    must_be_able(places, config, plan, file.parent)
    approval.grounds(plan, file.parent, start.next_id(places, plan))
    start.run(places, start.agree(places, plan, text, file, file.parent, headless=False))


def _check_goes_on(book: PlanLog) -> None:
    if book.run.state == "ended":
        raise RefusedError(f"plan {book.plan!r} has ended: {book.run.outcome}.", hint="Run its file again.")


def _id_of(plan: Plan, wanted: str) -> str:
    """Return the id of the task that *wanted* names, by its id or else by its number."""
    for task in (*(task for task in plan.tasks if task.id == wanted), *plan.tasks):
        if wanted in (task.id, str(task.number)):
            return task.id
    raise UsageError(
        f"the plan has no task {wanted!r}.", hint=(f"Its tasks: {', '.join(task.id for task in plan.tasks)}.")
    )
