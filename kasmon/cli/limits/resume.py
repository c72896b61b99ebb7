"""`kasmon limits resume` and `cancel`: which sessions go on when their usage limit ends."""

import asyncio
import os
import sys
import time
from typing import Annotated

from kasmon.cli.arguments import NAMED, Arg, Json
from kasmon.cli.limits.commands import moment
from kasmon.cli.output.console import accepts, print_answer, say
from kasmon.cli.output.table import aligned
from kasmon.config import load
from kasmon.errors import RefusedError, UsageError
from kasmon.host.rpc.peer import must_be_a_person
from kasmon.model.limits.resume import GRACE_S, waits_for_limit
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import clean_line
from kasmon.supervisor.fleet.lookup import check_named_alone, find, find_here
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.limits.permission import allow, cut_prompt, start_resumer
from kasmon.supervisor.limits.permission import cancel as cancel_resumption

SHOWN = 60
"""How many characters of a prompt are shown."""
SessionNames = Annotated[
    str, Arg(f"{NAMED} Default: all that wait for a limit.", ("SESSION...",), completer="sessions")
]


def resume(
    *sessions: SessionNames,
    prompt: Annotated[str, Arg("What they are sent; default: the prompt that was cut, or continue.")] = "",
    yes: Annotated[bool, Arg("Do not ask.")] = False,
    wants_json: Json = False,
) -> None:
    """Resume sessions once their usage limit ends, in this order, a few at once. It needs no open dashboard."""
    where = user_paths()
    config = load(where)
    asyncio.run(must_be_a_person(os.getpid(), None, action="resume sessions after a usage limit"))
    waiting = _select(where, sessions)
    if config.limits.resume == "never":
        raise RefusedError(
            "no session is resumed after a usage limit: `limits.resume` is 'never' in the config.",
            hint="Send it a prompt: `kasmon send SESSION continue`.",
        )
    prompts = {session.id: prompt or cut_prompt(where, session) for session in waiting}
    now = time.time()
    rows = [
        (clean_line(each.label), moment(each.limited_until, now), clean_line(prompts[each.id])[:SHOWN])
        for each in waiting
    ]
    if not yes:
        if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise RefusedError("not confirmed (stdin is not a terminal).", hint="Pass --yes to resume them.")
        say(*aligned([("SESSION", "LIMIT ENDS", "PROMPT"), *rows]))
        if not accepts(f"Send these prompts {GRACE_S:g} s after each limit ends?", sys.stdout):
            raise RefusedError("not confirmed: no session is resumed.")
    for session in waiting:
        allow(where, session, prompts[session.id])
    start_resumer(where, config, waiting)
    print_answer(
        *(f"{name}: resumes {'at ' + at if at != '-' else 'later'}: {text}" for name, at, text in rows),
        wants_json=wants_json,
        resumed=[{"session": each.id, "until": each.limited_until, "prompt": prompts[each.id]} for each in waiting],
    )


def cancel(*sessions: SessionNames, wants_json: Json = False) -> None:
    """Do not resume these sessions automatically after a usage limit, whatever the config says."""
    where = user_paths()
    waiting = _select(where, sessions)
    for session in waiting:
        cancel_resumption(where, session)
    lines = (f"{clean_line(session.label)}: is not resumed by kasmon" for session in waiting)
    print_answer(*lines, wants_json=wants_json, cancelled=[session.id for session in waiting])


def _select(where: Paths, names: tuple[str, ...]) -> list[Session]:
    """Return the sessions called *names*, each once; without a name those that wait for a limit and can be resumed.

    Raises:
        UsageError: if none waits; or if one of several is of another machine, where the other names mean others.
        OtherMachineError: if the only one is of another machine.
    """
    fleet = read_fleet(where)
    for name in names:
        check_named_alone(find(fleet, name), names)
    if names:
        return list({session.id: session for session in (find_here(fleet, name) for name in names)}.values())
    waiting = sorted(filter(waits_for_limit, fleet.sessions), key=lambda each: each.since)
    if not waiting:
        raise UsageError("no session of this machine waits for a usage limit.", hint="`kasmon limits` shows them.")
    return waiting
