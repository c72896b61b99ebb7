"""Read-only view of a plan: the approved plan, its progress and next steps. Writes nothing, contacts no process."""

import time
from pathlib import Path
from typing import NamedTuple

from kasmon.config import Config
from kasmon.errors import PlanNotFoundError
from kasmon.model.fleet import Fleet
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.scheduler import NextSteps, ahead
from kasmon.store.plan_log import PlanLog


class PlanView(NamedTuple):
    """One plan at one moment."""

    plan: Plan
    run: PlanRun
    ahead: NextSteps


def see(book: PlanLog, fleet: Fleet, config: Config) -> PlanView:
    """Return the view of the plan of *book*, from its log and *fleet*.

    Raises:
        PlanNotFoundError, PlanFaultyError: if its approved text is gone, or can no longer be read.
    """
    book.more()
    plan = settled(agreed(book), config)
    sessions = {str(session.id): session for session in fleet.sessions if session.plan == book.plan}
    return PlanView(plan, book.run, ahead(plan, book.run, sessions, plan.limit, time.time()))


def agreed(book: PlanLog) -> Plan:
    """Return the plan that the user approved.

    Raises:
        PlanNotFoundError, PlanFaultyError: if its text is gone, or can no longer be read.
    """
    path = book.agreed
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanNotFoundError(book.plan) from error
    return read(text, Path(book.run.file).name or path.name)  # without a name of its own, it is named after its file


def settled(plan: Plan, config: Config) -> Plan:
    """Return *plan*, with open settings filled in from the config."""
    return plan.settled(
        agent=config.default_agent,
        limit=config.plans.limit,
        advance=config.plans.auto_advance,
        believe=config.plans.believe,
    )
