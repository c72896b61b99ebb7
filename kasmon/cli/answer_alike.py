"""`kasmon answer --alike` and `kasmon inbox --alike`: similar requests answered together.

Each request is answered by its own digest. The list also has a digest over all its requests in their order: an
answer that names it applies to exactly that list, or to no request.
"""

import asyncio
import hashlib
import sys
from collections.abc import Sequence
from typing import Any, Final

from kasmon.cli.answer import meant, shown
from kasmon.cli.output.console import note, print_json, say, say_block, typed
from kasmon.cli.output.json_objects import error_object, request_object
from kasmon.cli.show import on_one_row
from kasmon.errors import KasmonError, RefusedError, StaleRequestError, UnableError, UsageError
from kasmon.host.journal.secrets import secrets_of
from kasmon.model.commands import Answer
from kasmon.model.fleet import Fleet, requests
from kasmon.model.permission import Decision, Request, parse_decision
from kasmon.model.request_groups import find_group
from kasmon.model.session import Session
from kasmon.paths import Paths, user_paths
from kasmon.sanitize import visible
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.sessions import session_operations

TOGETHER: Final = (Decision.ALLOW, Decision.DENY)
"""Decisions that are possible for several requests at once; a rule, an edit or a choice is for one."""


def list_alike(wanted: str, *, wants_json: bool) -> None:
    """Print the request *wanted* and similar ones, with the digest of all of them.

    Raises:
        RequestClosedError, RequestNotFoundError: if it is not open.
    """
    fleet = read_fleet(user_paths())
    _, request = meant(fleet, wanted)
    listed = find_group(request, requests(fleet)) or (request,)
    if wants_json:
        print_json(requests=[request_object(each) for each in listed], digest=digest_of(listed))
    else:
        say(*_lines(user_paths(), fleet, listed), f"digest of these {len(listed)}: {digest_of(listed)}")


def answer_alike(wanted: str, decision_text: str, *, digest: str, reason: str, yes: bool, wants_json: bool) -> int:
    """Answer *wanted* and all similar requests with the decision *decision_text*; return the exit code.

    Without *yes* and the *digest* of the list, all are shown and the user asked to confirm, on a terminal only. If one
    is answered elsewhere meanwhile, its error is printed and the others are still answered.

    Raises:
        UsageError: if the decision is not possible for several requests.
        StaleRequestError: if other requests are similar now than those of *digest*.
        RefusedError: if there is no terminal, or no similar request.
        RequestClosedError, RequestNotFoundError: if it is not open.
    """
    decision = parse_decision(decision_text)
    if decision not in TOGETHER:
        raise UsageError(
            f"similar requests can be answered with {' or '.join(TOGETHER)}, not with {decision_text!r}.",
            hint="Leave out --alike.",
        )
    if reason and decision is not Decision.DENY:
        raise UsageError(f"{decision_text!r} accepts no reason.", hint="Use --reason with deny.")
    where = user_paths()
    fleet = read_fleet(where)
    _, request = meant(fleet, wanted)
    listed = find_group(request, requests(fleet))
    if not listed:
        raise UnableError(f"no other request is similar to {request.id!r}.", hint="Leave out --alike.")
    if any(decision not in each.choices for each in listed):
        raise UnableError(f"not all of these requests accept {decision_text!r}.", hint="Answer them one by one.")
    if digest and digest != digest_of(listed):
        raise StaleRequestError(f"{request.id} and similar requests")
    if not (yes and digest):
        _confirm(where, fleet, listed, decision, wants_json=wants_json)
    outcomes = asyncio.run(_answer(where, fleet, listed, decision, reason))
    return _print_outcomes(listed, decision, outcomes, wants_json=wants_json)


def digest_of(listed: Sequence[Request]) -> str:
    """Return the SHA-256, in hex, of the listed requests' ids and digests."""
    return hashlib.sha256("\n".join(f"{each.id} {each.digest}" for each in listed).encode()).hexdigest()


def _confirm(where: Paths, fleet: Fleet, listed: Sequence[Request], decision: Decision, *, wants_json: bool) -> None:
    """Show all of *listed*, and have the user type the decision. Raises `RefusedError`."""
    if wants_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        if not wants_json:
            say(*_lines(where, fleet, listed), f"digest of these {len(listed)}: {digest_of(listed)}")
        raise RefusedError(
            f"{len(listed)} requests were not answered: there is no terminal to show them on.",
            hint=f"Review them with `kasmon inbox --alike {listed[0].id} --json`, then pass --yes --digest "
            f"{digest_of(listed)}.",
        )
    for number, request in enumerate(listed, 1):
        session = _session(fleet, request)
        say(f"{number} of {len(listed)}: {session.name}, {session.agent} in {session.workdir}")
        for line in shown(where, request, decision):
            say_block(line)
    if typed(f"Type {decision.value} to answer {decision.value!r} to these {len(listed)}") != decision.value:
        raise RefusedError(f"{len(listed)} requests were not answered.", hint="Nothing was sent.")


async def _answer(
    where: Paths, fleet: Fleet, listed: Sequence[Request], decision: Decision, reason: str
) -> list[KasmonError | None]:
    outcomes: list[KasmonError | None] = []
    for request in listed:
        given = Answer(request=request.id, digest=request.digest, decision=decision, reason=reason)
        try:
            await session_operations.execute(where, _session(fleet, request), given)
            outcomes.append(None)
        except KasmonError as error:
            outcomes.append(error)
    return outcomes


def _print_outcomes(
    listed: Sequence[Request], decision: Decision, outcomes: Sequence[KasmonError | None], *, wants_json: bool
) -> int:
    failed = [error for error in outcomes if error is not None]
    if wants_json:
        objects: list[dict[str, Any]] = []
        for request, error in zip(listed, outcomes, strict=True):
            why = None if error is None else error_object(error)["error"]
            objects.append(request_object(request) | {"decision": None if error else decision.value, "error": why})
        print_json(requests=objects, decision=decision.value)
    else:
        for request, error in zip(listed, outcomes, strict=True):
            if error is None:
                say(f"{request.id}: {decision}")
            else:
                note(f"{request.id}: {error}")
    return failed[0].exit_code if failed else 0


def _lines(where: Paths, fleet: Fleet, listed: Sequence[Request]) -> list[str]:
    """Return two lines for each request: its id, its session and its text; and its digest."""
    lines: list[str] = []
    for request in listed:
        text = on_one_row(request.shown or request.title, secrets_of(where, request.session))
        lines.append(f"{request.id}  {visible(_session(fleet, request).name)}  {visible(request.tool)} {text}")
        lines.append(f"    digest {request.digest}")
    return lines


def _session(fleet: Fleet, request: Request) -> Session:
    session = fleet.get(request.session)
    assert session is not None  # it was found by its session
    return session
