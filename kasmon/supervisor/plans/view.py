"""A plan as readers see it: what is agreed, how far it is, what is next. Nothing is written, nobody is asked."""

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
    """The plan of *book*, as its log and *fleet* have it.

    Raises:
        PlanNotFoundError, PlanFaultyError: if its agreed text is gone, or cannot be read any more.
    """
    book.more()
    plan = settled(agreed(book), config)
    sessions = {str(session.id): session for session in fleet.sessions if session.plan == book.plan}
    return PlanView(plan, book.run, ahead(plan, book.run, sessions, plan.limit, time.time()))


def agreed(book: PlanLog) -> Plan:
    """The plan that a person agreed to.

    Raises:
        PlanNotFoundError, PlanFaultyError: if its text is gone, or cannot be read any more.
    """
    path = book.agreed
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanNotFoundError(book.plan) from error
    return read(text, Path(book.run.file).name or path.name)  # unnamed, it is called as its file


def settled(plan: Plan, config: Config) -> Plan:
    """*plan* with the config's word where it leaves something open."""
    return plan.settled(
        agent=config.default_agent,
        limit=config.plans.limit,
        advance=config.plans.auto_advance,
        believe=config.plans.believe,
    )
