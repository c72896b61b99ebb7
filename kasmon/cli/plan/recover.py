"""`kasmon recover`: after a crash or a reboot, continue plans, and resume sessions in their own conversations."""

import asyncio
import sys
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from kasmon.cli.arguments import Arg, Json, OnMachine
from kasmon.cli.output.console import check_machine, note, note_other_machines, print_json, say
from kasmon.errors import KasmonError, UsageError
from kasmon.model.fleet import Fleet
from kasmon.model.formatting import age
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.paths import Paths, user_paths
from kasmon.store.machines import ALL
from kasmon.supervisor.fleet.lookup import find
from kasmon.supervisor.fleet.sandbox_adoption import end_unfinished, find_orphans, find_unfinished
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.plans.recover import InterruptedPlan, find_interrupted_plans, recover
from kasmon.supervisor.recovery.conversation import StoredConversation
from kasmon.supervisor.recovery.sessions import LostSession, choose, find_lost_sessions
from kasmon.supervisor.recovery.sessions import bring_back as resume
from kasmon.supervisor.sandboxes import use
from kasmon.supervisor.sessions.other_hosts import OtherHost, find_other_hosts
from kasmon.supervisor.sessions.tmux_host import bring_back, without_host

SHOWN = 72
"""How many characters of a message are shown in a choice."""


def recover_all(
    *,
    dry_run: Annotated[bool, Arg("Only print what would be done.")] = False,
    choose: Annotated[
        list[str] | None, Arg("SESSION=ID: the conversation of a session whose conversation cannot be determined.")
    ] = None,
    machine: OnMachine = "",
    wants_json: Json = False,
) -> int:
    """After a crash or a reboot: resume the plans, and each agent in its own conversation.

    Before an agent starts, its conversation is matched by id, folder, first prompt and last message.
    """
    if machine == ALL:
        return _recover_everywhere(choose or (), dry_run=dry_run, wants_json=wants_json)
    check_machine(machine)
    where = user_paths()
    fleet = read_fleet(where)
    wanted = _parse_choices(fleet, choose or ())
    report = _Report(wants_json=wants_json)
    unsure = [each for each in without_host(fleet.sessions) if each.state is SessionState.UNSURE]
    if _restart_host(where, fleet, unsure, report, dry_run=dry_run):
        fleet = read_fleet(where)  # the new host determines the state of each
    found = find_interrupted_plans(where, fleet)
    for plight in found:
        _recover_plan(where, plight, report, dry_run=dry_run)
    for session in () if dry_run else find_unfinished(where, fleet.sessions):
        _end_unfinished(where, session, report)
    for session in find_orphans(fleet.sessions):
        _reconnect(where, session, report, dry_run=dry_run)
    of_plans = {plight.session.id for plight in found if plight.session is not None}
    alone = [case for case in find_lost_sessions(where, fleet) if case.session.id not in of_plans]
    for case in alone:
        _recover_session(where, case, wanted.get(case.session.id, ""), report, dry_run=dry_run)
    other_hosts = find_other_hosts(where, fleet.sessions)
    known = of_plans | {case.session.id for case in alone}
    others = [each.name for each in fleet.here if each.state is SessionState.LOST and each.id not in known]
    unclear = _unclear(fleet, {session["session"] for session in report.reports})
    if wants_json:
        names = [each.name for each in (*unsure, *unclear)]
        old = [_host(each) for each in other_hosts]
        why = {each.name: each.unsure_why for each in unclear}
        print_json(recovered=report.reports, lost=others, unsure=names, unsure_why=why, other_hosts=old)
        return int(report.failed)
    if not report.reports and not others and not unclear:
        say("Nothing is lost.")
    note_other_machines(where, machine, "recover")
    for each in unclear:
        end = f"; `kasmon stop {each.id}` stops it" if each.is_orphaned else ""
        note(f"unsure: {each.name}: {each.unsure_why}{end}")
    for host in other_hosts:
        how = "`kasmon doctor --fix` replaces it" if host.status is not None else host.end.rstrip(".")
        note(f"of another version: {host.text}; {how}")
    if others:
        note(f"still lost: {', '.join(others)}; `kasmon restart` starts a session again")
    return int(report.failed)


class _RecoveryResult(msgspec.Struct, frozen=True):
    """One of those that `kasmon recover --json` prints, as far as a row shows it."""

    plan: str | None = None
    task: str | None = None
    name: str | None = None
    session: str | None = None
    did: str | None = None
    error: str | None = None


def _recover_everywhere(choices: Sequence[str], *, dry_run: bool, wants_json: bool) -> int:
    from kasmon.cli.machines.tables import MachineTable, print_all  # only for several machines

    if choices:
        raise UsageError("--choose names a session of one machine.", hint="Pass --machine NAME with it.")
    arguments = ("recover", *["--dry-run"] * dry_run)
    table = MachineTable(
        arguments, "recovered", _RecoveryResult, ("NAME", "RESULT"), _cells, "Nothing is lost.", _notes
    )
    return print_all(table, wants_json=wants_json)


def _cells(listed: _RecoveryResult) -> tuple[str, str]:
    of_plan = f"plan {listed.plan}" + (f", task {listed.task}" if listed.task else "")
    return listed.name or listed.session or of_plan, listed.did or listed.error or ""


def _notes(content: Mapping[str, Any]) -> Iterator[str]:
    recovered = [each.get("name") for each in _list_candidates(content, "recovered") if isinstance(each, dict)]
    reasons = content.get("unsure_why")
    for name in _list_candidates(content, "unsure"):
        if name not in recovered:
            why = reasons.get(name) if isinstance(reasons, dict) and isinstance(name, str) else None
            yield f"unsure: {name}: {why}" if why else f"unsure: {name}"
    if names := _list_candidates(content, "lost"):
        yield f"still lost: {', '.join(map(str, names))}; `kasmon restart` starts a session again"
    if content.get("other_hosts"):
        yield "it has hosts of another version; `kasmon doctor` there names them"


def _list_candidates(content: Mapping[str, Any], field: str) -> list[Any]:
    listed = content.get(field)
    return listed if isinstance(listed, list) else []


def _unclear(fleet: Fleet, named: Container[str | None]) -> list[Session]:
    """Return the sessions not *named* yet that may be lost: their log or their host is missing."""
    unsure = (each for each in fleet.here if each.state is SessionState.UNSURE and each.id not in named)
    return [each for each in unsure if each.source in ("log", "host")]


class _Report:
    """The results, printed one by one or collected for a single JSON answer."""

    def __init__(self, *, wants_json: bool) -> None:
        self.wants_json = wants_json
        self.reports: list[dict[str, Any]] = []
        self.failed = False

    def add(self, what: str, became: str, problem: str = "", **fields: Any) -> None:
        self.failed |= bool(problem)
        shape = {"plan": None, "task": None, "session": None, "name": None}
        self.reports.append({**shape, **fields, "did": became or None, "error": problem or None})
        if not self.wants_json:
            say(f"{what}: {became or problem}")

    def add_session(self, session: Session, became: str, problem: str = "", **fields: Any) -> None:
        self.add(session.name, became, problem, session=session.id, name=session.name, **fields)


def _recover_plan(where: Paths, plight: InterruptedPlan, report: _Report, *, dry_run: bool) -> None:
    became, problem = _plan_words(plight) if dry_run else "", ""
    if not dry_run:
        try:
            became = asyncio.run(recover(where, plight))
        except KasmonError as error:
            problem = error.message
    what = f"plan {plight.plan}" + (f", task {plight.task}" if plight.task else "")
    report.add(what, became, problem, plan=plight.plan, task=plight.task or None)


def _restart_host(where: Paths, fleet: Fleet, unsure: Sequence[Session], report: _Report, *, dry_run: bool) -> bool:
    """Start the shared tmux host if sessions of *fleet* lost it; return whether it was started.

    *unsure*: those of them whose agents may still run without it.
    """
    became, problem, is_back = "the tmux host would be restarted", "", False
    if not dry_run and without_host(fleet.sessions):
        try:
            is_back = asyncio.run(bring_back(where))
            became = "the tmux host was restarted"
        except KasmonError as error:
            became, problem = "", f"the tmux host could not be restarted: {error.message}"
    if unsure and not report.wants_json:
        count = "1 session is" if len(unsure) == 1 else f"{len(unsure)} sessions are"
        say(f"{count} unsure: host gone")
    for session in unsure:
        report.add_session(session, became, problem)
    return is_back


def _reconnect(where: Paths, session: Session, report: _Report, *, dry_run: bool) -> None:
    """Start a new host for a sandbox that outlived its own."""
    became, problem = "would reconnect to its sandbox" if dry_run else "reconnected to its sandbox", ""
    if not dry_run:
        try:
            asyncio.run(use.start_host(where, session))
        except KasmonError as error:
            became, problem = "", error.message
    report.add_session(session, became, problem)


def _end_unfinished(where: Paths, session: Session, report: _Report) -> None:
    try:
        end_unfinished(where, session)
    except KasmonError as error:
        report.add_session(session, "", error.message)
    else:
        report.add_session(session, "its unfinished sandbox was removed")


def _recover_session(where: Paths, case: LostSession, choice: str, report: _Report, *, dry_run: bool) -> None:
    """Resume a session in its own conversation, if that is known or the user chooses it."""
    became = problem = ""
    try:
        if case.action == "ask" and (choice := choice or ("" if dry_run else _ask_candidate(case))):
            case = choose(case, choice)
        if case.action == "leave":
            became = f"unchanged: {case.why}"
        elif case.action == "ask":
            problem = f"{case.why}: choose with --choose {case.session.name}=ID"
        elif dry_run:
            became = f"would resume conversation {case.resume}, {case.why}"
        else:
            became = asyncio.run(resume(where, case))
    except KasmonError as error:
        problem = error.message
    lost = f". Lost: {'; '.join(case.lost)}" if case.lost else ""
    report.add_session(
        case.session,
        f"{became}{lost}" if became else "",
        f"{problem}{lost}" if problem else "",
        conversation=case.resume or None,
        candidates=[_candidate(each) for each in case.candidates],
        lost=list(case.lost),
    )
    if case.action == "ask" and not report.wants_json:
        for each in case.candidates:
            say(f"    {_line(each)}")


def _ask_candidate(case: LostSession) -> str:
    """Return the candidate that the user chooses; empty for none, or without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    note(f"{case.session.name}, in {case.session.workdir}: {case.why}.")
    for number, each in enumerate(case.candidates, 1):
        note(f"  {number}  {_line(each)}")
    sys.stderr.write("Which conversation? [number, Enter for none] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    number = int(answer) if answer.isascii() and answer.isdecimal() and len(answer) < 6 else 0
    return case.candidates[number - 1].id if 1 <= number <= len(case.candidates) else ""


def _parse_choices(fleet: Fleet, choices: Sequence[str]) -> Mapping[str, str]:
    """Return session id -> the conversation that the user named for it."""
    wanted: dict[str, str] = {}
    for choice in choices:
        name, _, conversation = choice.rpartition("=")
        if not name or not conversation:
            raise UsageError(f"{choice!r} is not SESSION=ID.", hint="Pass --choose SESSION=ID.")
        wanted[find(fleet, name).id] = conversation
    return wanted


def _host(other: OtherHost) -> dict[str, Any]:
    status = other.status
    return {
        "session": other.session.id if other.session is not None else None,
        "pid": other.pid,
        "kasmon": status.kasmon if status is not None else None,
        "protocol": status.protocol if status is not None else None,
    }


def _candidate(kept: StoredConversation) -> dict[str, Any]:
    return {"id": kept.id, "directory": kept.directory, "first": kept.first, "last": kept.last, "at": kept.at}


def _line(kept: StoredConversation) -> str:
    ago = age(time.time() - kept.at)
    return f"{kept.id}  {ago} ago  first: {_short(kept.first)!r}  last: {_short(kept.last)!r}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _plan_words(plight: InterruptedPlan) -> str:
    return {
        "run": "would continue",
        "resume": f"would be resumed ({plight.why})",
        "fail": f"would count as failed: {plight.why}",
    }[plight.action]
