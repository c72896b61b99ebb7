"""`kasmon limits`: what is known of the usage limits of each account."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from kasmon.cli.arguments import NAMED, Arg, Json
from kasmon.cli.output.console import print_answer, print_json, say
from kasmon.cli.output.table import aligned
from kasmon.config import load, load_or_default
from kasmon.model.commands import HELD, ReceiptState
from kasmon.model.formatting import clock
from kasmon.model.limits.account import AccountLimits, account_limits
from kasmon.model.limits.budget import WARN_SHARE, BudgetUse, uses
from kasmon.model.limits.resume import Resumption
from kasmon.model.limits.window import LimitWindow, forecast
from kasmon.model.session import Session
from kasmon.paths import user_paths
from kasmon.sanitize import clean_line
from kasmon.store.resume_log import read_resumptions
from kasmon.supervisor.fleet.lookup import find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.budgets import budgets_of, require_budget
from kasmon.supervisor.limits.permission import start_resumer

HEADS = ("ACCOUNT", "LIMIT", "USED", "RESETS", "REPORTED", "FORECAST")
NOTHING_KNOWN = "No agent has reported a usage limit yet."


def list_all(*, wants_json: Json = False) -> None:
    """Show how far the usage limits of each account are used, and which sessions wait for one."""
    where = user_paths()
    fleet = read_fleet(where)
    accounts = account_limits(fleet.sessions, fleet.at)
    resumptions = read_resumptions(where)
    config = load_or_default(where)
    start_resumer(where, config, fleet.sessions)
    budgets = uses(budgets_of(config), fleet.sessions, fleet.at)
    if wants_json:
        known = {session: resumptions.get(session) for account in accounts for session in account.parked}
        resumed = {session: msgspec.to_builtins(each) for session, each in known.items()}
        print_json(
            accounts=[account_object(account) for account in accounts],
            resumptions=resumed,
            budgets=list(map(_budget_object, budgets)),
        )
        return
    if accounts:
        names = {each.id: _describe_parked(each, resumptions.get(each.id, Resumption())) for each in fleet.sessions}
        say(*aligned([HEADS, *(cells for account in accounts for cells in _rows(account, fleet.at))]))
        for account in accounts:
            if account.parked:
                parked = ", ".join(names[session] for session in account.parked)
                until = f" until {moment(account.until, fleet.at)}" if account.until else ""
                say(f"{clean_line(account.key.label)}: limited{until}: {parked}")
    for use in budgets:
        mark = "used up" if use.is_used_up else "almost used up" if use.share >= WARN_SHARE else f"{use.share:.0%}"
        label = clean_line(next((each.label for each in fleet.sessions if each.id == use.subject), use.subject))
        say(f"{use.text} ({mark})" + (f": {label}" if label else ""))
    say(*_held_lines(fleet.sessions))
    if not accounts and not budgets:
        say(NOTHING_KNOWN)


def check(
    session: Annotated[str, Arg(NAMED, ("SESSION",), completer="sessions")], /, *, wants_json: Json = False
) -> None:
    """Check that the budgets allow another prompt to a session; exit with 4 if not."""
    where = user_paths()
    config, fleet = load(where), read_fleet(where)
    found = find_here(fleet, session)
    require_budget(config, found, fleet.sessions)
    print_answer(
        f"{clean_line(found.label)}: no budget is used up", wants_json=wants_json, session=found.id, allowed=True
    )


def _held_lines(sessions: Iterable[Session]) -> list[str]:
    """Return the sessions whose queued prompts a budget holds, as lines."""
    return [
        f"{clean_line(each.label)}: a queued prompt is {clean_line(receipt.reason)}"
        for each in sessions
        for receipt in each.receipts
        if receipt.state is ReceiptState.QUEUED and receipt.reason.startswith(HELD)
    ]


def _budget_object(use: BudgetUse) -> dict[str, Any]:
    return {
        "scope": use.budget.scope,
        "subject": use.subject or None,
        "spent": use.spent,
        "most": use.budget.most,
        "unit": "USD" if use.budget.is_money else "tokens",
    }


def _describe_parked(session: Session, resumption: Resumption) -> str:
    """Return its name with what was decided and done: `docs (resumes)`."""
    if resumption.gave_up:
        state = f"given up: {clean_line(resumption.gave_up)}"
    elif resumption.failed:
        state = f"resumes; the last try failed: {clean_line(resumption.failed)}"
    elif resumption.is_allowed or resumption.tries:
        state = f"resumes; tried {resumption.tries} times" if resumption.tries else "resumes"
    else:
        state = "continues by itself" if session.in_turn else ""
    return f"{clean_line(session.label)} ({state})" if state else clean_line(session.label)


def account_object(account: AccountLimits) -> dict[str, Any]:
    """Return *account* as an object for programs."""
    return {
        "agent": account.key.program,
        "account": account.key.account or None,
        "machine": account.key.machine or None,
        "sessions": list(account.sessions),
        "parked": list(account.parked),
        "until": account.until,
        "limits": [_window_object(window) for window in account.windows],
    }


def _window_object(window: LimitWindow) -> dict[str, Any]:
    return {
        "name": window.name,
        "used": window.used,
        "resets_at": window.resets_at,
        "reached": window.is_reached,
        "reported_at": window.at,
        "forecast": msgspec.to_builtins(forecast(window)),
    }


def _rows(account: AccountLimits, now: float) -> list[tuple[str, ...]]:
    label = clean_line(account.key.label)
    if not account.windows:
        return [(label, "-", "reached", moment(account.until, now), "-", "-")]
    rows: list[tuple[str, ...]] = []
    for window in account.windows:
        full = forecast(window)
        rows.append(
            (
                label,
                clean_line(window.name),
                "reached" if window.is_reached else "-" if window.used is None else f"{window.used:.0%}",
                moment(window.resets_at, now),
                moment(window.at, now),
                f"full at {moment(full.full_at, now)} ({full.basis})" if full else "-",
            )
        )
    return rows


def moment(at: float | None, now: float) -> str:
    """Return the time *at* for people: with its date unless it is within a day of *now*."""
    if at is None:
        return "-"
    return clock(at)[:5] if abs(at - now) < 86400 / 2 else clock(at, day=True)[:16]
