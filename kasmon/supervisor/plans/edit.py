"""How a plan's file differs from what runs of it, and what a person agrees to by taking that over."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kasmon.config import Config
from kasmon.errors import KasmonError
from kasmon.model.plan.change import changes
from kasmon.model.plan.read import look_at
from kasmon.model.plan.run import PlanRun
from kasmon.model.plan.spec import Plan, placed
from kasmon.paths import Places
from kasmon.supervisor.plans import agreement, start
from kasmon.supervisor.plans.confinement import unable


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """How a plan's file differs from what runs."""

    digest: str
    """By which its text is told from every other."""
    lines: tuple[str, ...] = ()
    """`+` added, `-` taken away, `~` changed."""
    refused: tuple[str, ...] = ()
    """Why it cannot be taken over; its faults, where it has any."""
    agreement: tuple[str, ...] = ()
    """What a person agrees to by taking it over."""


def whole(places: Places, plan: Plan, file: Path, faults: Sequence[str], config: Config) -> Edit:
    """All of *plan*, whose *file* nobody has run yet and which has *faults*, as an edit."""
    refused = tuple(faults)
    if not refused and (why := unable(places, config, plan, file.parent)):
        refused = (why,)
    return Edit(
        digest=start.digest("" if refused else _text(file)),
        lines=tuple(f"+ task {task.id}: {task.title}" for task in plan.tasks),
        refused=refused,
        agreement=() if refused else tuple(agreement.shown(plan, config, file.parent)),
    )


def edited(places: Places, text: str, file: Path, plan: Plan, run: PlanRun, config: Config) -> Edit | None:
    """How *text* differs from *plan*; None where it does not."""
    digest = start.digest(text)
    if digest == run.digest:
        return None
    new, faults = look_at(text, str(file), tuple(config.agents))
    if faults:
        return Edit(digest=digest, refused=tuple(placed(file.name, fault) for fault in faults))
    lines, refused = changes(plan, new, run)
    if not lines:
        return None
    folder, remarks = Path(run.folder), []
    refused = (*refused, why) if (why := unable(places, config, new, folder)) else refused
    try:
        remarks = [f"  but {remark}" for remark in agreement.grounds(new, folder)]
    except KasmonError as error:
        refused = (*refused, error.message)
    return Edit(
        digest=digest, lines=lines, refused=refused, agreement=(*agreement.shown(new, config, folder), *remarks)
    )


def _text(file: Path) -> str:
    try:
        return start.text_of(file)
    except (KasmonError, OSError):
        return ""
