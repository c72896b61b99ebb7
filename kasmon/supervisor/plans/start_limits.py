"""Budgets and accounts as they limit the start of a plan's tasks now, and what a person agrees to before it runs."""

import os
import time
from collections.abc import Iterable, Mapping

import msgspec

from kasmon.backends.common.environment import program_of
from kasmon.config import Config, resolve
from kasmon.errors import KasmonError, UnableError
from kasmon.model.formatting import clock
from kasmon.model.limits.account import AccountLimits, account_limits
from kasmon.model.limits.resume import UNKNOWN_S, limit_ends_at
from kasmon.model.plan.plan import Plan, Task, agent_of
from kasmon.model.plan.progress import PlanRun
from kasmon.model.plan.scheduler import StartNextAttempt, next_steps
from kasmon.model.plan.start_limits import AccountSpread, AccountUse, StartLimits
from kasmon.model.session import Session
from kasmon.paths import expanded
from kasmon.supervisor.limits.account import account_variables, find_account
from kasmon.supervisor.limits.budgets import held_plan


def find_start_limits(
    config: Config, plan: Plan, of_plan: Iterable[Session], sessions: Iterable[Session]
) -> StartLimits:
    """Return what limits the start of further tasks of *plan* now; *of_plan*: its sessions, also of other machines."""
    everyone = tuple(sessions)
    return StartLimits(held=held_plan(config, of_plan, everyone), accounts=_find_uses(config, plan, everyone))


def _find_uses(config: Config, plan: Plan, sessions: tuple[Session, ...]) -> dict[str, AccountUse]:
    """Return each account that *plan* names and the config has, as the sessions of this machine reported it."""
    wanted = {*plan.accounts, *(name for task in plan.tasks for name in task.accounts)} & config.accounts.keys()
    if not wanted:
        return {}
    programs = {agent: program_of((profile.program,), agent) for agent, profile in config.agents.items()}
    now, uses = time.time(), {}
    for name in wanted:
        account = config.accounts[name]
        called = {name, str(expanded(account.directory).absolute())} if account.directory else {name}
        program = programs.get(account.agent, "")
        own = [
            msgspec.structs.replace(session, account=name)
            for session in sessions
            if session.account in called and not session.via
        ]
        reported = next((each for each in account_limits(own, now) if each.key.program == program), None)
        windows = () if reported is None else reported.windows
        uses[name] = AccountUse(
            agents=frozenset(agent for agent, its_program in programs.items() if program and its_program == program),
            used=max((window.used for window in windows if window.used is not None), default=None),
            problem=_find_problem(reported, own, now),
        )
    return uses


def _find_problem(reported: AccountLimits | None, sessions: Iterable[Session], now: float) -> str:
    """Return until when the account is at a limit; empty if it is not.

    The limit of one model alone (`weekly_MODEL`) counts as soon as a session waits for it. One without a known end
    counts for `UNKNOWN_S` after its report.
    """
    if reported is None:
        return ""
    ends = [
        window.at + UNKNOWN_S if window.resets_at is None else window.resets_at
        for window in reported.windows
        if (window.is_reached or (window.used or 0.0) >= 1.0) and not window.name.startswith(("weekly_", "extra"))
    ]
    ends += [limit_ends_at(session) for session in sessions if session.id in reported.parked]
    last = max(ends, default=now)
    return f"it is at its limit until {clock(last, day=True)[:16]}" if last > now else ""


def check_accounts(config: Config, plan: Plan, variables: Mapping[str, str] = os.environ) -> None:
    """Refuse *plan* if one of its tasks here could not use an account that it names; the message names the task.

    Raises as `account_variables`, or `UnableError` if a sandbox would not see it.
    """
    names = [*plan.accounts, *(name for task in plan.tasks for name in task.accounts)]
    if not names:
        return
    for name in names:
        find_account(config, name)
    plan = _with_agent(plan, config)
    spread = AccountSpread(plan, PlanRun(), _find_uses(config, plan, ()))
    used = set()
    for task in plan.tasks:
        candidates = spread.find_candidates(task)
        used.update(candidates)
        for name in (*candidates, *(name for name in task.accounts if name not in candidates)):
            try:
                _check_account(config, plan, task, name, variables)
            except KasmonError as error:
                error.message = f"task {task.id!r} cannot use its account: {error.message}"
                raise
    if idle := [name for name in plan.accounts if name not in used]:
        raise UnableError(
            f"no task of the plan can use the account {idle[0]!r}: it is one of {config.accounts[idle[0]].agent!r}.",
            hint="Leave it out, or give a task that agent.",
        )


def _check_account(config: Config, plan: Plan, task: Task, name: str, variables: Mapping[str, str]) -> None:
    agent = agent_of(plan, task)
    try:
        resolved = resolve(config, agent, task.mode or plan.mode or None, sandbox=task.sandbox or None)
    except KasmonError:
        return  # its start reports why
    account = account_variables(config, name, agent, program_of(resolved.argv, resolved.agent), variables)
    if account.directory is not None and resolved.sandbox is not None:
        raise UnableError(
            f"the account {name!r} has a config directory, which its sandbox {resolved.sandbox!r} does not see."
        )


def _with_agent(plan: Plan, config: Config) -> Plan:
    return msgspec.structs.replace(plan, agent=plan.agent or config.default_agent)


def describe_accounts(config: Config, plan: Plan, sessions: Iterable[Session]) -> list[str]:
    """Return over which accounts *plan* spreads its tasks, and which account each would get that can begin now."""
    plan = _with_agent(plan, config)
    limits = find_start_limits(config, plan, (), sessions)
    spread = AccountSpread(plan, PlanRun(), limits.accounts)
    groups: dict[tuple[str, ...], list[str]] = {}
    for task in plan.tasks:
        if candidates := tuple(spread.find_candidates(task)):
            groups.setdefault(candidates, []).append(task.id)
    if not groups:
        return []
    rule = "in turn" if plan.spread == "round-robin" else "the least used first"
    lines = [
        f"  uses the account {names[0]!r} for task {', '.join(tasks)}"
        if len(names) == 1
        else f"  spreads task {', '.join(tasks)} over the accounts {', '.join(names)}, {rule}"
        for names, tasks in groups.items()
    ]
    ahead = next_steps(plan, PlanRun(), {}, plan.limit or config.plans.limit, time.time(), limits=limits)
    lines += [
        f"  now, task {step.task.id} would use {step.account.account!r} ({step.account.why})"
        for step in ahead.steps
        if isinstance(step, StartNextAttempt) and step.account.account
    ]
    return lines + describe_waits(config, plan, sessions)


def describe_waits(config: Config, plan: Plan, sessions: Iterable[Session]) -> list[str]:
    """Return which accounts of *plan* get no task now, and until when."""
    accounts = find_start_limits(config, _with_agent(plan, config), (), sessions).accounts
    return [f"  now, account {name!r} gets no task: {use.problem}" for name, use in accounts.items() if use.problem]
