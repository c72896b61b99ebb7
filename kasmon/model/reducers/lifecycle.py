"""The changes of a session when its agent starts, is lost, is found, changes its settings or ends, and when the
receipt of a prompt changes."""

from collections.abc import Collection
from typing import Final

import msgspec

from kasmon.model.commands import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.events import ConnectionLost, ConnectionRestored, SessionEnded, SessionStarted, SettingsChanged
from kasmon.model.reducers.sandbox import is_timed_out
from kasmon.model.reducers.session_requests import withdraw_all
from kasmon.model.session import Session, last_line, number
from kasmon.model.session_state import OVER, SessionState

KEPT_RECEIPTS: Final = 20
WAITING: Final = (ReceiptState.QUEUED, ReceiptState.TYPED)
ON_THE_WAY: Final = (*WAITING, ReceiptState.SUBMITTED, ReceiptState.STARTED)


def put_receipt(session: Session, receipt: Receipt) -> Session:
    """Return *session* with the current *receipt*; the oldest settled receipts are dropped."""
    if any(old.id == receipt.id for old in session.receipts):
        receipts = tuple(receipt if old.id == receipt.id else old for old in session.receipts)
    else:
        receipts = (*session.receipts, receipt)
    under_way = WAITING if session.mode is Mode.TMUX else ON_THE_WAY
    settled = [known.id for known in receipts if known.state not in under_way]
    dropped = set(settled[:-KEPT_RECEIPTS])
    return msgspec.structs.replace(
        session,
        receipts=tuple(known for known in receipts if known.id not in dropped),
        receipts_counted=max(session.receipts_counted, number(receipt.id, session.receipts_counted + 1)),
    )


def order_receipts(receipts: tuple[Receipt, ...], order: tuple[ReceiptId, ...]) -> tuple[Receipt, ...]:
    """Return *receipts* with the queued ones in *order*; those that it does not name come after, as before."""
    waiting = [receipt for receipt in receipts if receipt.state is ReceiptState.QUEUED]
    positions = {receipt: place for place, receipt in enumerate(order)}
    waiting.sort(key=lambda receipt: positions.get(receipt.id, len(positions)))
    after = iter(waiting)
    return tuple(next(after) if receipt.state is ReceiptState.QUEUED else receipt for receipt in receipts)


def lose_receipts(session: Session, states: Collection[ReceiptState], why: str, at: float) -> tuple[Receipt, ...]:
    """Return the session's receipts, those in *states* lost. A terminal's prompt has arrived once Enter was written."""
    losing = set(states) & set(WAITING) if session.mode is Mode.TMUX else states
    return tuple(
        msgspec.structs.replace(receipt, state=ReceiptState.LOST, reason=why, at=at)
        if receipt.state in losing
        else receipt
        for receipt in session.receipts
    )


HANDED_OVER = "handed over to another version of kasmon"
"""The end reason of a session whose host handed it over to one of another version."""


def apply_start(session: Session, event: SessionStarted) -> Session:
    """Return *session* with a new agent process: nothing of the previous one remains except queued prompts.

    The permission mode is unknown until the new agent reports it.
    """
    fresh = withdraw_all(session, "the agent was restarted", event.at)
    if event.account not in (None, session.account):
        fresh = msgspec.structs.replace(fresh, account=event.account, limit_windows=())
    return msgspec.structs.replace(
        fresh,
        generation=event.generation,
        backend=event.backend or session.backend,
        mode=event.mode,
        workdir=(f"{session.via}:{event.workdir}" if session.via else event.workdir)
        if event.workdir
        else session.workdir,
        pid=None if session.via else event.pid,  # a number on another machine is no process of this one
        pid_started=event.pid_started,
        pid_boot=event.pid_boot,
        resume_id=event.resume_id or session.resume_id,
        model=event.model or session.model,
        permission_mode="",
        permission_modes=(),
        switches=(),
        log_in=None,
        abilities=event.abilities,
        proof=event.proof,
        last_words="",
        last_line="" if session.end_why and session.last_line == last_line(session.end_why) else session.last_line,
        exit_code=None,
        signal=None,
        end_why="",
        stopped=False,
        handed_over=False,
        freed_bytes=None,
        timed_out=False,
        signals=(),
        in_turn=False,
        receipts=lose_receipts(fresh, frozenset(ON_THE_WAY) - {ReceiptState.QUEUED}, "its host had ended", event.at),
    )


def lose_connection(session: Session, event: ConnectionLost) -> Session:
    """Return *session* with the reason it is unreachable, if *event* is about the connection to its machine."""
    is_news = event.what == "remote line" and session.state not in OVER
    return msgspec.structs.replace(session, end_why=event.why) if is_news else session


def restore_connection(session: Session, event: ConnectionRestored) -> Session:
    """Return *session*, whose agent kept running while unreachable, with the process that *event* names."""
    if event.pid is None or session.state is not SessionState.LOST:
        return session
    if session.via:
        return msgspec.structs.replace(session, end_why="")
    return msgspec.structs.replace(
        session, pid=event.pid, pid_started=event.pid_started, pid_boot=event.pid_boot, end_why=""
    )


def set_up(session: Session, event: SettingsChanged) -> Session:
    """Return *session* with the settings that *event* names; the others are unchanged."""
    return msgspec.structs.replace(
        session,
        model=event.model or session.model,
        models=event.models or session.models,
        permission_mode=event.permission_mode or session.permission_mode,
        permission_modes=event.permission_modes or session.permission_modes,
        switches=session.switches if event.switches is None else event.switches,
        resume_id=event.resume_id or session.resume_id,
    )


def apply_end(session: Session, event: SessionEnded) -> Session:
    """Return *session* with how its agent ended.

    Queued prompts remain if it never began, was handed over, or is hibernated.
    """
    gone = withdraw_all(session, "the agent ended", event.at)
    is_resumed = event.why == HANDED_OVER or session.freed_bytes is not None
    keeps_queue = event.never_began or is_resumed
    losing = frozenset(ON_THE_WAY) - ({ReceiptState.QUEUED} if keeps_queue else set())
    return msgspec.structs.replace(
        gone,
        exit_code=event.exit_code,
        signal=event.signal,
        end_why=event.why,
        last_words=event.last_words,
        stopped=event.why == "stopped",
        handed_over=event.why == HANDED_OVER,
        timed_out=is_timed_out(session),
        receipts=lose_receipts(gone, losing, "the agent ended", event.at),
        in_turn=False,
        last_line=last_line(event.why) if event.why and event.why != "stopped" else gone.last_line,
    )
