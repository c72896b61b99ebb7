"""Whether a sandboxed agent rests, from its session's state, and since when. Pure.

It rests only if it is known to be idle: not in a turn, without a request, without a prompt being delivered, and with a
known state.
"""

import math
from typing import Final

from kasmon.model.commands import Mode, ReceiptState
from kasmon.model.reducers.evidence import judged
from kasmon.model.sandbox.state import SandboxState
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

BEGIN_S: Final = 10.0
"""How long after its delivery, in seconds, a prompt may still begin a turn."""
ALIKE_S: Final = 1.0
RESTING: Final = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
AT_WORK: Final = frozenset({SessionState.WORKING, SessionState.ASKING})
ON_THE_WAY: Final = frozenset({ReceiptState.QUEUED, ReceiptState.TYPED})
GIVEN: Final = frozenset({ReceiptState.SUBMITTED, ReceiptState.STARTED})


def as_of(session: Session, now: float) -> Session:
    """Return *session* at *now*: in a terminal its state may change without a new event."""
    if session.recheck_at is not None and session.recheck_at <= now:
        return judged(session, now, since=session.recheck_at)
    return session


def rests_at(session: Session) -> float:
    """Return from when on it has neither work nor a pending request; infinity while it has."""
    if session.state not in RESTING or session.in_turn or session.asks:
        return math.inf
    if any(receipt.state in ON_THE_WAY for receipt in session.receipts):
        return math.inf
    return max((receipt.at + BEGIN_S for receipt in session.receipts if receipt.state in GIVEN), default=0.0)


def used_at(session: Session) -> float:
    """Return when it was last used, according to its events."""
    housing = session.housing or SandboxState()
    return max(housing.used_at, session.since if session.state is SessionState.IDLE else 0.0)


def is_at_work(session: Session, now: float) -> bool:
    """Whether *session*, which was paused, was in the midst of work by its last events."""
    if session.mode is not Mode.TMUX:
        return session.state in AT_WORK
    return session.state is SessionState.STANDBY and judged(session, now).state in AT_WORK


def alike(one: float | None, other: float | None) -> bool:
    """Whether two moments, in seconds since the epoch, are equal within `ALIKE_S`."""
    return one is other if one is None or other is None else abs(one - other) < ALIKE_S
