"""What our log knows of a session's conversation: its id, its folder, what was said in it."""

from collections.abc import Iterable

from kasmon.errors import LogMissingError
from kasmon.model.command import ReceiptId, ReceiptState
from kasmon.model.event import Event, MessageSaid, ReceiptMoved, TurnStarted
from kasmon.model.session import Session
from kasmon.paths import Places
from kasmon.store.log import EventLog
from kasmon.supervisor.recovery.kept import Known

ARRIVED = (ReceiptState.SUBMITTED, ReceiptState.STARTED, ReceiptState.FINISHED)


def known(places: Places, session: Session) -> Known:
    """What the log of *session* says; without a log, what it is. Blocks."""
    try:
        events = [event for event, _ in EventLog(places.log(session.id)).read()]
    except LogMissingError:
        events = []
    return told(session, events)


def told(session: Session, events: Iterable[Event]) -> Known:
    """What *events*, the facts of *session*, say of its conversation."""
    by_turn: list[str] = []
    by_receipt: dict[ReceiptId, str] = {}
    typed: list[str] = []
    said: list[str] = []
    is_whole = True
    for event in events:
        match event:
            case TurnStarted(by="agent"):
                pass
            case TurnStarted(prompt=prompt):
                by_turn.append(prompt)
            case ReceiptMoved(receipt=receipt, prompt=prompt):
                if prompt:
                    by_receipt[receipt.id] = prompt
                if receipt.state in ARRIVED and receipt.id in by_receipt:
                    typed.append(by_receipt.pop(receipt.id))
            case MessageSaid(within="", text=text) if text.strip():
                said.append(text)
            case _:
                pass
    if not by_turn:  # a terminal: people type into it too, and nobody hears that
        is_whole = False
    return Known(
        directory=session.workdir,
        id=session.resume_id or "",
        since=session.created_at,
        prompts=tuple(text for text in by_turn or typed if text.strip()),
        is_whole=is_whole,
        said=tuple(said[-2:]),
    )
