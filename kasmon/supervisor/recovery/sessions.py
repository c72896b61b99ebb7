"""What is lost of the sessions that belong to no plan, and how each comes back: in its own conversation, or not at all.

A program that keeps no conversation, a shell say, is not started again: what it ran may not be meant to run twice.
"""

import asyncio
from typing import Literal

import msgspec

from kasmon.config.address import machine_of
from kasmon.errors import LaunchError, RefusedError
from kasmon.host.book import wanted
from kasmon.model.command import Launch, Mode, ReceiptState
from kasmon.model.fleet import Fleet
from kasmon.model.session import Session
from kasmon.model.state import SessionState
from kasmon.paths import Places, write_private
from kasmon.supervisor import verb
from kasmon.supervisor.look import look_once
from kasmon.supervisor.recovery import stores
from kasmon.supervisor.recovery.finding import Finding, found
from kasmon.supervisor.recovery.kept import Kept
from kasmon.supervisor.recovery.knowing import known

STARTS_ANEW = "`kasmon restart` starts it anew"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One lost session, and what is to be done about it."""

    session: Session
    deed: Literal["resume", "ask", "leave"]
    why: str
    """By what its conversation is known; what is not known; or why it is left."""
    resume: str = ""
    """The agent's own id of the conversation that it goes on with."""
    candidates: tuple[Kept, ...] = ()
    lost: tuple[str, ...] = ()
    """What does not come back, in words."""


def cases(places: Places, fleet: Fleet) -> list[Case]:
    """What is to be done about each lost session of *fleet* that belongs to no plan, oldest first. Blocks."""
    lost = [
        each
        for each in fleet.sessions
        if each.state is SessionState.LOST and not each.plan and each.mode is not Mode.INTERPRETER
    ]
    taken = {each.resume_id for each in fleet.sessions if each.resume_id}
    return [_case(places, each, taken - {each.resume_id}) for each in sorted(lost, key=lambda each: each.created_at)]


def chosen(case: Case, conversation: str) -> Case:
    """*case*, where a person said which conversation it is.

    Raises:
        RefusedError: if it is none of the candidates.
    """
    kept = next((each for each in case.candidates if each.id == conversation), None)
    if kept is None:
        ids = ", ".join(each.id for each in case.candidates) or "none"
        raise RefusedError(
            f"{conversation!r} is no conversation that {case.session.name!r} can have.", hint=f"There are: {ids}."
        )
    return msgspec.structs.replace(case, deed="resume", resume=kept.id, why="chosen by you")


async def bring_back(places: Places, case: Case) -> str:
    """Start the session of *case* with its conversation; what is known of that, in words.

    Raises:
        KasmonError: why it did not come back; it is as lost as before then.
    """
    before = case.session
    if before.resume_id != case.resume:
        await asyncio.to_thread(_remember, places, before, case.resume)
        before = msgspec.structs.replace(before, resume_id=case.resume)
    await verb.restart(places, before)
    now = (await asyncio.to_thread(look_once, places)).get(before.id)
    proof = f"; {now.proof}" if now is not None and now.proof else ""
    return f"goes on with its conversation {case.resume}, {case.why}{proof}"


def _case(places: Places, session: Session, taken: set[str]) -> Case:
    lost = tuple(_lost(session))
    if session.adopted:
        return Case(session=session, deed="leave", why="it is of your own tmux: kasmon starts nothing there", lost=lost)
    if machine_of(session.agent):
        why = f"it may live on its machine: `kasmon restart {session.id}` connects again"
        return Case(session=session, deed="leave", why=why)
    try:
        finding = _finding(places, session, wanted(places, session.id), taken)
    except (LaunchError, OSError) as error:
        told = error.message if isinstance(error, LaunchError) else error.strerror
        why = f"what it was cannot be read: {told}"
        return Case(session=session, deed="leave", why=why, lost=lost)
    match finding:
        case Finding(kind="proven", kept=Kept(id=id_), why=why):
            return Case(session=session, deed="resume", why=why, resume=id_, lost=lost)
        case Finding(kind="proven", why=why):
            return Case(session=session, deed="resume", why=why, resume=session.resume_id or "", lost=lost)
        case Finding(kind="ask", why=why, candidates=candidates):
            return Case(session=session, deed="ask", why=why, candidates=candidates, lost=lost)
    return Case(session=session, deed="leave", why=f"{finding.why}; {STARTS_ANEW}", lost=("its conversation", *lost))


def _finding(places: Places, session: Session, launch: Launch, taken: set[str]) -> Finding:
    there = stores.conversations(places, launch)
    if there is not None:
        return found(known(places, session), there, taken)
    if session.resume_id and launch.mode is not Mode.TMUX:  # its backend proves it, before the first prompt
        return Finding(kind="proven", why="known by its id")
    return Finding(kind="none", why="its program keeps no conversation that kasmon knows of")


def _lost(session: Session) -> list[str]:
    """What of *session* does not come back with its conversation."""
    lost = []
    if session.in_turn or any(receipt.state is ReceiptState.STARTED for receipt in session.receipts):
        lost.append("what the turn that was cut had not said yet")
    if session.mode is Mode.TMUX:
        lost.append("what stood on its screen and above it")
    if uncertain := sum(receipt.state in (ReceiptState.TYPED, ReceiptState.LOST) for receipt in session.receipts):
        lost.append(f"{uncertain} prompt{'s' * (uncertain > 1)} of which nobody knows whether it arrived")
    return lost


def _remember(places: Places, session: Session, conversation: str) -> None:
    """Write down which conversation *session* goes on with, so that its next start opens that."""
    launch = msgspec.structs.replace(wanted(places, session.id), resume=conversation)
    write_private(places.launch(session.id), msgspec.json.encode(launch))
