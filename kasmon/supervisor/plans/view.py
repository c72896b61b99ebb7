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
from kasmon.model.plan.scheduler import NextSteps, next_steps
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.plan_log import PlanLog
from kasmon.supervisor.plans.start_limits import find_start_limits


class PlanView(NamedTuple):
    plan: Plan
    run: PlanRun
    ahead: NextSteps


def read_view(plan_log: PlanLog, fleet: Fleet, config: Config) -> PlanView:
    """Return the view of the plan of *plan_log*, from its log and *fleet*. Raises as `approved_plan`."""
    plan_log.more()
    plan = apply_config(approved_plan(plan_log), config)
    sessions = find_sessions(plan_log, fleet)
    limits = find_start_limits(config, plan, sessions.values(), fleet.sessions)
    ahead = next_steps(plan, plan_log.run, sessions, plan.limit, time.time(), limits=limits)
    return PlanView(plan, plan_log.run, ahead)


def find_sessions(plan_log: PlanLog, fleet: Fleet) -> dict[str, Session]:
    """Return the plan's sessions, by id. A copy of another machine's session names no plan."""
    logged = logged_sessions(plan_log.run)
    return {
        str(session.id): session
        for session in fleet.sessions
        if session.id in logged or (session.plan == plan_log.plan and not is_of_other_plan(plan_log.paths, session))
    }


def logged_sessions(run: PlanRun) -> frozenset[str]:
    """Return the ids of the sessions of all attempts."""
    return frozenset(id_ for at in run.tasks.values() for id_ in (at.session, *at.earlier))


def is_of_other_plan(paths: Paths, session: Session) -> bool:
    """Whether *session* works here on a task of another machine's plan."""
    return Path(session.workdir).is_relative_to(paths.plan_tasks)


def approved_plan(plan_log: PlanLog) -> Plan:
    """Return the plan that the user approved.

    Raises `PlanNotFoundError` or `PlanFaultyError` if its text is gone, or can no longer be read.
    """
    path = plan_log.agreed
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanNotFoundError(plan_log.plan) from error
    # Without a name of its own, it is named after its file.
    return read(text, Path(plan_log.run.file).name or path.name, on=plan_log.run.on)


def apply_config(plan: Plan, config: Config) -> Plan:
    """Return *plan*, with open settings filled in from the config."""
    return plan.settled(
        agent=config.default_agent,
        limit=config.plans.limit,
        advance=config.plans.auto_advance,
        believe=config.plans.believe,
    )
