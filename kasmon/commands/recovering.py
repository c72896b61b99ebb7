"""`kasmon recover`: plans go on where they were after a crash or a reboot."""

import asyncio
from typing import Any

from kasmon.commands.objects import answer
from kasmon.commands.output import note, say, tell
from kasmon.errors import KasmonError
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places, places
from kasmon.supervisor import sandboxes
from kasmon.supervisor.look import look_once
from kasmon.supervisor.orphans import orphans
from kasmon.supervisor.plans.recover import Plight, plights, recover


def recover_all(*, dry_run: bool, wants_json: bool) -> int:
    """Bring back what can be brought back, or only say what that is. 1 where something did not come back."""
    where = places()
    fleet = look_once(where)
    found = plights(where, fleet)
    told: list[dict[str, Any]] = []
    failed = False
    for plight in found:
        became, problem = _plan_words(plight) if dry_run else "", ""
        if not dry_run:
            try:
                became = asyncio.run(recover(where, plight))
            except KasmonError as error:
                failed, problem = True, error.message
        what = f"plan {plight.plan}" + (f", task {plight.task}" if plight.task else "")
        told.append({"plan": plight.plan, "task": plight.task or None, "did": became or None, "error": problem or None})
        if not wants_json:
            say(f"{what}: {became or problem}")
    for session in orphans(fleet.sessions):
        failed |= _taken_up(where, session, told, dry_run=dry_run, wants_json=wants_json)
    of_plans = {plight.session.id for plight in found if plight.session is not None}
    others = [s.name for s in fleet.sessions if s.state is SessionState.LOST and s.id not in of_plans]
    if wants_json:
        tell(answer(recovered=told, lost=others))
        return int(failed)
    if not told:
        say("No plan lost anything.")
    if others:
        note(f"lost, and of no plan: {', '.join(others)}; `kasmon restart` starts one again")
    return int(failed)


def _taken_up(where: Places, session: Session, told: list[dict[str, Any]], *, dry_run: bool, wants_json: bool) -> bool:
    """Give a sandbox that outlived its host another one; whether that failed."""
    became, problem = "its sandbox would be found again" if dry_run else "its sandbox was found again", ""
    if not dry_run:
        try:
            asyncio.run(sandboxes.take_up(where, session))
        except KasmonError as error:
            became, problem = "", error.message
    told.append({"plan": None, "task": None, "session": session.id, "did": became or None, "error": problem or None})
    if not wants_json:
        say(f"{session.name}: {became or problem}")
    return bool(problem)


def _plan_words(plight: Plight) -> str:
    return {
        "run": "would go on",
        "resume": f"would be resumed ({plight.why})",
        "fail": f"would count as failed: {plight.why}",
    }[plight.deed]
