"""How a plan's file differs from the running plan, and what the user approves by applying the edit."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.plan.diff import changes
from kasmon.model.plan.parser import parse_for_display
from kasmon.model.plan.plan import Plan, describe_fault
from kasmon.model.plan.progress import PlanRun
from kasmon.paths import Paths
from kasmon.store.machines import own_names
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans import approval as agreement
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.sandboxes import find_problem


class PlanEdit(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between a plan's file and the running plan."""

    digest: str
    lines: tuple[str, ...] = ()
    """`+` added, `-` removed, `~` changed."""
    refused: tuple[str, ...] = ()
    """Why it cannot be applied; its faults, if any."""
    agreement: tuple[str, ...] = ()
    """What the user approves by applying it."""


def build_first_edit(paths: Paths, plan: Plan, file: Path, faults: Sequence[str], config: Config) -> PlanEdit:
    """Return all of *plan* as an edit; its *file* never ran and has *faults*."""
    lines = tuple(f"+ task {task.id}: {task.title}" for task in plan.tasks)
    refused = tuple(faults)
    if not refused and (why := find_problem(paths, config, plan, file.parent)):
        refused = (why,)
    if refused:
        return PlanEdit(digest=start.digest(""), lines=lines, refused=refused)
    try:
        text = start.text_of(file)
    except (KasmonError, OSError):
        text = ""
    sessions = read_fleet(paths).sessions
    described = agreement.describe_plan(plan, config, file.parent, own_names=own_names(paths), sessions=sessions)
    return PlanEdit(digest=start.digest(text), lines=lines, agreement=tuple(described))


def find_edit(paths: Paths, text: str, file: Path, plan: Plan, run: PlanRun, config: Config) -> PlanEdit | None:
    """Return how *text* differs from *plan*; None if it does not."""
    digest = start.digest(text)
    if digest == run.digest:
        return None
    new, faults = parse_for_display(text, str(file), tuple(config.agents), run.on)
    if faults:
        return PlanEdit(digest=digest, refused=tuple(describe_fault(file.name, fault) for fault in faults))
    lines, refused = changes(plan, new, run)
    if not lines:
        return None
    folder, remarks = Path(run.folder), []
    refused = (*refused, why) if (why := find_problem(paths, config, new, folder)) else refused
    try:
        remarks = [f"  but {remark}" for remark in agreement.check_repository(new, folder, run.plan, run)]
    except KasmonError as error:
        refused = (*refused, error.message)
    sessions = read_fleet(paths).sessions
    described = agreement.describe_plan(new, config, folder, own_names=own_names(paths), sessions=sessions)
    return PlanEdit(digest=digest, lines=lines, refused=refused, agreement=(*described, *remarks))
