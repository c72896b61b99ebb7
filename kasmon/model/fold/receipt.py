"""The receipts of a session's prompts: moved, put in another order, and lost with the agent."""

from collections.abc import Collection
from typing import Final

import msgspec

from kasmon.model.command import Mode, Receipt, ReceiptId, ReceiptState
from kasmon.model.session import Session, number

KEPT_RECEIPTS: Final = 20
WAITING: Final = (ReceiptState.QUEUED, ReceiptState.TYPED)
ON_THE_WAY: Final = (*WAITING, ReceiptState.SUBMITTED, ReceiptState.STARTED)


def moved(session: Session, receipt: Receipt) -> Session:
    """*session* with *receipt* as it is now; the oldest that are settled are dropped."""
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


def ordered(receipts: tuple[Receipt, ...], order: tuple[ReceiptId, ...]) -> tuple[Receipt, ...]:
    """*receipts* with those that wait as *order* says; what it does not name comes after, as before."""
    waiting = [receipt for receipt in receipts if receipt.state is ReceiptState.QUEUED]
    places = {receipt: place for place, receipt in enumerate(order)}
    waiting.sort(key=lambda receipt: places.get(receipt.id, len(places)))
    after = iter(waiting)
    return tuple(next(after) if receipt.state is ReceiptState.QUEUED else receipt for receipt in receipts)


def lost(session: Session, states: Collection[ReceiptState], why: str, at: float) -> tuple[Receipt, ...]:
    """The session's receipts, those in *states* lost. A terminal's prompt has arrived once Enter was written."""
    losing = set(states) & set(WAITING) if session.mode is Mode.TMUX else states
    return tuple(
        msgspec.structs.replace(receipt, state=ReceiptState.LOST, reason=why, at=at)
        if receipt.state in losing
        else receipt
        for receipt in session.receipts
    )
