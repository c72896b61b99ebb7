"""`kasmon send`: a prompt for one session or for several, and how far it came."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from kasmon.clean import clean_line
from kasmon.commands.listing import chosen, states_of
from kasmon.commands.objects import answer, receipt_object
from kasmon.commands.output import say, tell
from kasmon.errors import KasmonError, RefusedError, SessionEndedError, SessionNotFoundError, TimedOutError, UsageError
from kasmon.model.command import Receipt, ReceiptId, ReceiptState, When
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.state import ALIVE, SessionState
from kasmon.model.text import cells
from kasmon.paths import Places, places
from kasmon.supervisor import verb
from kasmon.supervisor.find import find
from kasmon.supervisor.look import look_once
from kasmon.supervisor.wait import fleets

CODES: Final = {ReceiptState.REFUSED: 4, ReceiptState.LOST: 1}
"""The exit codes of receipts that did not make it."""
ON_ITS_WAY: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED})
"""Receipts of prompts that are not with the agent yet."""
SHELL: Final = "shell"
"""The agent whose prompts are commands: one is over when it is known how it ended."""
SUBMIT_S: Final = 30.0
"""How long a prompt that is not to be queued may take to be with the agent, in seconds."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, and what is to be waited for."""

    prompt: str
    when: When = "now"
    anyway: bool = False
    """Type it also where nobody sees the box that takes it."""
    states: frozenset[SessionState] | None = None
    """Wait until the session is in one of these after it took the prompt; None does not wait."""


def send(
    wanted: str | None,
    text: str,
    *,
    to: str | None,
    when: When,
    anyway: bool = False,
    states: str | None,
    timeout_s: float | None,
    wants_json: bool,
) -> int:
    """Give one session, or every session that *to* means, a prompt; print the receipts and return the exit code.

    Raises:
        UsageError: if the prompt is empty, or it is not clear who is meant.
        NotFoundError: if there is no such session.
        RefusedError: if *to* means nobody; or as the one session's host says, like other errors of it.
        TimedOutError: if it did not happen within *timeout_s* seconds.
    """
    if (wanted is None) == (to is None):
        raise UsageError(
            "it is not clear who is meant.", hint="Name one SESSION, or several with --to state=idle,wave=2."
        )
    prompt = sys.stdin.read() if text == "-" else text
    if not prompt.strip():
        raise UsageError("the prompt is empty.", hint="Say it as one argument, or `-` to read it from stdin.")
    if anyway and when == "idle":
        raise UsageError(
            "what waits for an idle agent is typed where its box is seen.", hint="Say --anyway without --when idle."
        )
    sending = Sending(prompt=prompt, when=when, anyway=anyway, states=None if states is None else states_of(states))
    where = places()
    fleet = look_once(where)
    if wanted is not None:
        receipt = asyncio.run(_in_time(where, find(fleet, wanted), sending, timeout_s))
        if wants_json:
            tell(answer(receipt=receipt_object(receipt)))
        else:
            say(f"{receipt.id}: {receipt.state}{_because(receipt)}")
        return CODES.get(receipt.state, 0)
    sessions = several(fleet, to or "")
    outcomes = asyncio.run(_to_all(where, sessions, sending, timeout_s))
    if wants_json:
        tell(answer(receipts=[receipt_object(receipt) for receipt, _ in outcomes]))
    else:
        say(*table(sessions, [receipt for receipt, _ in outcomes]))
    return max(code for _, code in outcomes)


def table(sessions: Sequence[Session], receipts: Sequence[Receipt]) -> list[str]:
    """What became of one prompt in several *sessions*, a line each."""
    names = [clean_line(session.name) for session in sessions]
    room = max(map(cells, names))
    return [
        f"{name}{' ' * (room - cells(name))}  {receipt.id or '-':<12}  {receipt.state}{_because(receipt)}"
        for name, receipt in zip(names, receipts, strict=True)
    ]


def several(fleet: Fleet, to: str) -> list[Session]:
    """The running sessions that a filter such as `state=idle,wave=2` means; a part said twice means either.

    Raises:
        UsageError: if it is no such filter.
        RefusedError: if it means nobody.
    """
    said: dict[str, list[str]] = {"state": [], "wave": [], "agent": []}
    for part in to.split(","):
        name, _, value = part.strip().partition("=")
        if name not in said or not value:
            raise UsageError(
                f"{part!r} means nobody.", hint="--to takes state=STATE, wave=N and agent=NAME, with commas."
            )
        said[name].append(value)
    states = states_of(",".join(said["state"]) or None)
    found = [
        session
        for session in chosen(fleet, states, None)
        if session.exists
        and (not said["wave"] or str(session.wave) in said["wave"])
        and (not said["agent"] or session.agent in said["agent"])
    ]
    if not found:
        raise RefusedError(f"no running session is meant by {to!r}.", hint="See `kasmon ls`.")
    return found


async def _to_all(
    where: Places, sessions: Sequence[Session], sending: Sending, timeout_s: float | None
) -> list[tuple[Receipt, int]]:
    """The receipts of all *sessions*, each with its exit code; what went wrong with one stands in its receipt and stops
    no other."""

    async def to(session: Session) -> tuple[Receipt, int]:
        try:
            receipt = await _in_time(where, session, sending, timeout_s)
        except KasmonError as error:
            state = ReceiptState.REFUSED if error.exit_code == RefusedError.exit_code else ReceiptState.LOST
            told = Receipt(id=ReceiptId(""), session=session.id, state=state, reason=error.message)
            if isinstance(error, TimedOutError) and (known := await asyncio.to_thread(_newest, where, session)):
                told = msgspec.structs.replace(known, reason=known.reason or error.message)
            return told, CODES.get(state, 0) if told.id == "" else error.exit_code
        return receipt, CODES.get(receipt.state, 0)

    return list(await asyncio.gather(*map(to, sessions)))


def _newest(where: Places, before: Session) -> Receipt | None:
    """The receipt of what was sent since *before* was seen."""
    now, known = look_once(where).get(before.id), {receipt.id for receipt in before.receipts}
    return next((receipt for receipt in now.receipts if receipt.id not in known), None) if now is not None else None


async def _in_time(where: Places, session: Session, sending: Sending, timeout_s: float | None) -> Receipt:
    waits_on_purpose = sending.states is not None or sending.when == "idle"
    limit_s = timeout_s if timeout_s is not None or waits_on_purpose else SUBMIT_S
    try:
        async with asyncio.timeout(limit_s):
            receipt = await verb.send(where, session, sending.prompt, sending.when, anyway=sending.anyway)
            is_enough = receipt.state not in ON_ITS_WAY or sending.when == "idle"
            return (
                receipt if sending.states is None and is_enough else await _followed(where, session, receipt, sending)
            )
    except TimeoutError as error:
        goal = "take the prompt" if sending.states is None else f"be {' or '.join(sorted(sending.states))}"
        raise TimedOutError(
            f"waited {limit_s:g} s for {session.name!r} to {goal}.", hint="See `kasmon show`."
        ) from error


async def _followed(where: Places, before: Session, receipt: Receipt, sending: Sending) -> Receipt:
    """The receipt once the agent has the prompt and, where that is wanted, the session is in one of its states.

    Raises:
        SessionNotFoundError: if it is forgotten meanwhile.
        SessionEndedError: if its agent does not run any more, and that is not what was waited for.
    """
    async with fleets(where) as changes:
        async for fleet in changes:
            if (now := fleet.get(before.id)) is None:
                break
            receipt = next((known for known in now.receipts if known.id == receipt.id), receipt)
            if receipt.state in CODES or (sending.states is None and receipt.state not in ON_ITS_WAY):
                return receipt
            is_over = receipt.state is ReceiptState.FINISHED or now.agent != SHELL or now.state is not SessionState.IDLE
            if sending.states and now.state in sending.states and is_over and has_moved(before, now, receipt):
                return receipt
            if now.state not in ALIVE:
                raise SessionEndedError(now.name)
    raise SessionNotFoundError(before.name)


def has_moved(before: Session, now: Session, receipt: Receipt) -> bool:
    """Whether *now* can be what came of the prompt, and is not just still the state before it."""
    if receipt.state is ReceiptState.FINISHED or now.state is not before.state:
        return True
    return (now.turns, now.since, now.generation) != (before.turns, before.since, before.generation)


def _because(receipt: Receipt) -> str:
    code = f" with exit code {receipt.exit_code}" if receipt.exit_code is not None else ""
    return f"{code}, {receipt.reason}" if receipt.reason else code
