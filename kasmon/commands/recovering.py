"""`kasmon recover`: after a crash or a reboot, plans go on where they were, and sessions in their own conversations."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kasmon.commands.objects import answer
from kasmon.commands.output import note, say, tell
from kasmon.commands.table import age
from kasmon.errors import KasmonError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places, places
from kasmon.supervisor import sandboxes
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once
from kasmon.supervisor.orphans import orphans
from kasmon.supervisor.plans.recover import Plight, plights, recover
from kasmon.supervisor.recovery.kept import Kept
from kasmon.supervisor.recovery.sessions import Case, bring_back, cases, chosen

SHOWN = 72
"""So many characters of a message are shown where a person chooses."""


def recover_all(choices: Sequence[str] = (), *, dry_run: bool, wants_json: bool) -> int:
    """Bring back what can be brought back, or only say what that is. 1 where something did not come back.

    *choices*: `SESSION=CONVERSATION`, where a person knows which conversation a session had.

    Raises:
        UsageError, NotFoundError: if one of those makes no sense; nothing was done then.
    """
    where = places()
    fleet = look_once(where)
    wanted = _chosen(fleet, choices)
    report = _Report(wants_json=wants_json)
    found = plights(where, fleet)
    for plight in found:
        _plan(where, plight, report, dry_run=dry_run)
    for session in orphans(fleet.sessions):
        _taken_up(where, session, report, dry_run=dry_run)
    of_plans = {plight.session.id for plight in found if plight.session is not None}
    alone = [case for case in cases(where, fleet) if case.session.id not in of_plans]
    for case in alone:
        _session(where, case, wanted.get(case.session.id, ""), report, dry_run=dry_run)
    known = of_plans | {case.session.id for case in alone}
    others = [each.name for each in fleet.sessions if each.state is SessionState.LOST and each.id not in known]
    if wants_json:
        tell(answer(recovered=report.told, lost=others))
        return int(report.failed)
    if not report.told and not others:
        say("Nothing is lost.")
    if others:
        note(f"lost as they are: {', '.join(others)}; `kasmon restart` starts one again")
    return int(report.failed)


class _Report:
    """What became of each, said as it comes or kept for one answer."""

    def __init__(self, *, wants_json: bool) -> None:
        self.wants_json = wants_json
        self.told: list[dict[str, Any]] = []
        self.failed = False

    def add(self, what: str, became: str, problem: str = "", **fields: Any) -> None:
        self.failed |= bool(problem)
        shape = {"plan": None, "task": None, "session": None}
        self.told.append({**shape, **fields, "did": became or None, "error": problem or None})
        if not self.wants_json:
            say(f"{what}: {became or problem}")


def _plan(where: Places, plight: Plight, report: _Report, *, dry_run: bool) -> None:
    became, problem = _plan_words(plight) if dry_run else "", ""
    if not dry_run:
        try:
            became = asyncio.run(recover(where, plight))
        except KasmonError as error:
            problem = error.message
    what = f"plan {plight.plan}" + (f", task {plight.task}" if plight.task else "")
    report.add(what, became, problem, plan=plight.plan, task=plight.task or None)


def _taken_up(where: Places, session: Session, report: _Report, *, dry_run: bool) -> None:
    """Give a sandbox that outlived its host another one."""
    became, problem = "its sandbox would be found again" if dry_run else "its sandbox was found again", ""
    if not dry_run:
        try:
            asyncio.run(sandboxes.take_up(where, session))
        except KasmonError as error:
            became, problem = "", error.message
    report.add(session.name, became, problem, session=session.id)


def _session(where: Places, case: Case, choice: str, report: _Report, *, dry_run: bool) -> None:
    """Let a session go on in its own conversation, where that is known or a person says it."""
    became = problem = ""
    try:
        if case.deed == "ask" and (choice := choice or ("" if dry_run else _asked(case))):
            case = chosen(case, choice)
        if case.deed == "leave":
            became = f"is left as it is: {case.why}"
        elif case.deed == "ask":
            problem = f"{case.why}: say which with --choose {case.session.name}=ID"
        elif dry_run:
            became = f"would go on with its conversation {case.resume}, {case.why}"
        else:
            became = asyncio.run(bring_back(where, case))
    except KasmonError as error:
        problem = error.message
    lost = f". Lost: {'; '.join(case.lost)}" if case.lost else ""
    report.add(
        case.session.name,
        f"{became}{lost}" if became else "",
        f"{problem}{lost}" if problem else "",
        session=case.session.id,
        conversation=case.resume or None,
        candidates=[_candidate(each) for each in case.candidates],
        lost=list(case.lost),
    )
    if case.deed == "ask" and not report.wants_json:
        for each in case.candidates:
            say(f"    {_line(each)}")


def _asked(case: Case) -> str:
    """Which of the candidates a person at this terminal chooses; empty for none of them, or where nobody sits here."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    note(f"{case.session.name}, in {case.session.workdir}: {case.why}.")
    for number, each in enumerate(case.candidates, 1):
        note(f"  {number}  {_line(each)}")
    sys.stderr.write("Which one is it? [number, Enter for none] ")
    sys.stderr.flush()
    said = sys.stdin.readline().strip()
    number = int(said) if said.isascii() and said.isdecimal() and len(said) < 6 else 0
    return case.candidates[number - 1].id if 1 <= number <= len(case.candidates) else ""


def _chosen(fleet: Fleet, choices: Sequence[str]) -> Mapping[str, str]:
    """Session's id -> the conversation that a person named for it."""
    wanted: dict[str, str] = {}
    for choice in choices:
        name, _, conversation = choice.rpartition("=")
        if not name or not conversation:
            raise UsageError(f"{choice!r} names no session's conversation.", hint="Write --choose SESSION=ID.")
        wanted[find(fleet, name).id] = conversation
    return wanted


def _candidate(kept: Kept) -> dict[str, Any]:
    return {"id": kept.id, "directory": kept.directory, "first": kept.first, "last": kept.last, "at": kept.at}


def _line(kept: Kept) -> str:
    ago = age(time.time() - kept.at)
    return f"{kept.id}  {ago} ago  first: {_short(kept.first)!r}  last: {_short(kept.last)!r}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _plan_words(plight: Plight) -> str:
    return {
        "run": "would go on",
        "resume": f"would be resumed ({plight.why})",
        "fail": f"would count as failed: {plight.why}",
    }[plight.deed]
