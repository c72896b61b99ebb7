"""One more fact in a session: `apply`. Facts are folded, never refused: one that fits no row changes nothing."""

from typing import Final

import msgspec

from kasmon.model.event import (
    Checkpointed,
    ConfinementSeen,
    ContextSaid,
    Event,
    ForeignSeen,
    LimitLifted,
    LimitReached,
    LineFound,
    LineLost,
    MessageSaid,
    NoticeRaised,
    Opened,
    PlanUpdated,
    QueueOrdered,
    ReceiptMoved,
    RequestAnswered,
    RequestOpened,
    RequestSetAside,
    RequestWithdrawn,
    SandboxMeasured,
    SandboxMoved,
    SessionCreated,
    SessionEnded,
    SessionForgotten,
    SessionRenamed,
    SessionStarted,
    SettingsChanged,
    SignalSeen,
    StuckSeen,
    ThoughtSaid,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unknown,
    UsageReported,
)
from kasmon.model.fold import agent, receipt, request, turn
from kasmon.model.fold.sandbox import rehoused
from kasmon.model.fold.signal import noted
from kasmon.model.fold.state import restated
from kasmon.model.housing import housed
from kasmon.model.progress import progressed
from kasmon.model.session import Session, last_line
from kasmon.model.state import SessionState

REST: Final = frozenset({SessionState.STARTING, SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
"""States out of which work is another turn, in a terminal too."""


def apply(session: Session, event: Event) -> Session:
    """*session* after *event*. Pure; a fact that fits no row changes nothing."""
    after = _told(session, event)
    if (progress := progressed(session.progress, event)) is not session.progress:
        after = msgspec.structs.replace(after, progress=progress)
    if (housing := housed(session.housing, event)) is not session.housing:
        after = rehoused(session, after, housing, event)
    return _lasting(session, restated(session, after, event), event)


def _told(session: Session, event: Event) -> Session:
    """*session* with what *event* says beside the state."""
    put = msgspec.structs.replace
    match event:  # what there is most of stands first
        case SignalSeen():
            return noted(session, event)
        case MessageSaid():
            return put(session, last_line=last_line(event.text) or session.last_line)
        case ToolStarted():
            return put(session, last_line=f"{event.tool} {event.title}".strip())
        case ThoughtSaid() | ToolFinished():
            return session
        case SessionRenamed():
            return put(session, name=event.name)
        case SessionForgotten():
            return put(session, forgotten=True)
        case SessionStarted():
            return agent.started(session, event)
        case SessionEnded():
            return agent.ended(session, event)
        case LineLost():
            return agent.line_lost(session, event)
        case LineFound():
            return agent.line_found(session, event)
        case TurnStarted():
            return put(session, turns=session.turns + 1, in_turn=True, turn_ended="", turn_error="")
        case TurnEnded():
            return turn.ended(session, event)
        case NoticeRaised():
            return put(session, last_line=last_line(event.text))
        case UsageReported():
            return turn.used(session, event)
        case SettingsChanged():
            return agent.set_up(session, event)
        case LimitReached():
            return put(session, limited_until=event.until, last_line=last_line(event.text) or session.last_line)
        case StuckSeen():
            return put(session, stuck=bool(event.why), stuck_why=event.why)
        case ContextSaid():
            return turn.stands(session, event)
        case RequestOpened():
            return request.opened(session, event.request)
        case RequestAnswered():
            return request.answered(session, event)
        case RequestWithdrawn():
            return request.withdrawn(session, event.request, event.why, event.at)
        case RequestSetAside():
            return request.set_aside(session, event.request)
        case ReceiptMoved():
            return receipt.moved(session, event.receipt)
        case QueueOrdered():
            return put(session, receipts=receipt.ordered(session.receipts, event.receipts))
        case (
            Opened()
            | SessionCreated()
            | PlanUpdated()
            | ForeignSeen()
            | LimitLifted()
            | SandboxMoved()
            | ConfinementSeen()
            | SandboxMeasured()
            | Checkpointed()
            | Unknown()
        ):
            return session


def _lasting(before: Session, after: Session, event: Event) -> Session:
    """*after*, without what only holds while it works, or until its next turn, where that is over."""
    begins = before.state in REST and after.state is SessionState.WORKING
    if after.waits and (begins or isinstance(event, TurnStarted | SessionStarted | SessionEnded)):
        after = msgspec.structs.replace(after, waits="")
    if after.done is not None and isinstance(event, SessionStarted):
        after = msgspec.structs.replace(after, done=None)
    if after.stuck and after.state is not SessionState.WORKING:
        after = msgspec.structs.replace(after, stuck=False, stuck_why="")
    return after
