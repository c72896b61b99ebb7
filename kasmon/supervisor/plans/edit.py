"""How a plan's file differs from what runs of it, and what a person agrees to by taking that over."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.plan.diff import changes
from kasmon.model.plan.parser import look_at
from kasmon.model.plan.plan import Plan, placed
from kasmon.model.plan.progress import PlanRun
from kasmon.paths import Paths
from kasmon.supervisor.plans import approval as agreement
from kasmon.supervisor.plans import start
from kasmon.supervisor.plans.sandboxes import unable


class PlanEdit(msgspec.Struct, frozen=True, kw_only=True):
    """How a plan's file differs from what runs."""

    digest: str
    """By which its text is told from every other."""
    lines: tuple[str, ...] = ()
    """`+` added, `-` taken away, `~` changed."""
    refused: tuple[str, ...] = ()
    """Why it cannot be taken over; its faults, where it has any."""
    agreement: tuple[str, ...] = ()
    """What a person agrees to by taking it over."""


def whole(places: Paths, plan: Plan, file: Path, faults: Sequence[str], config: Config) -> PlanEdit:
    """All of *plan*, whose *file* nobody has run yet and which has *faults*, as an edit."""
    refused = tuple(faults)
    if not refused and (why := unable(places, config, plan, file.parent)):
        refused = (why,)
    return PlanEdit(
        digest=start.digest("" if refused else _text(file)),
        lines=tuple(f"+ task {task.id}: {task.title}" for task in plan.tasks),
        refused=refused,
        agreement=() if refused else tuple(agreement.shown(plan, config, file.parent)),
    )


def edited(places: Paths, text: str, file: Path, plan: Plan, run: PlanRun, config: Config) -> PlanEdit | None:
    """How *text* differs from *plan*; None where it does not."""
    digest = start.digest(text)
    if digest == run.digest:
        return None
    new, faults = look_at(text, str(file), tuple(config.agents))
    if faults:
        return PlanEdit(digest=digest, refused=tuple(placed(file.name, fault) for fault in faults))
    lines, refused = changes(plan, new, run)
    if not lines:
        return None
    folder, remarks = Path(run.folder), []
    refused = (*refused, why) if (why := unable(places, config, new, folder)) else refused
    try:
        remarks = [f"  but {remark}" for remark in agreement.grounds(new, folder, run.plan, run)]
    except KasmonError as error:
        refused = (*refused, error.message)
    return PlanEdit(
        digest=digest, lines=lines, refused=refused, agreement=(*agreement.shown(new, config, folder), *remarks)
    )


def _text(file: Path) -> str:
    try:
        return start.text_of(file)
    except (KasmonError, OSError):
        return ""
