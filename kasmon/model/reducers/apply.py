"""Apply an event to a session: `apply`. Events are never refused: one that does not fit the state changes nothing."""

from typing import Final

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.events import (
    Checkpointed,
    ConfinementSeen,
    ConnectionLost,
    ConnectionRestored,
    ContextReported,
    EntryImported,
    Event,
    LimitLifted,
    LimitReached,
    LogOpened,
    MessageWritten,
    NoticeRaised,
    PartialTextWritten,
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
    SessionViewed,
    SettingsChanged,
    SignalSeen,
    StuckSeen,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UnknownEvent,
    UnknownMessageSeen,
    UsageReported,
)
from kasmon.model.reducers import lifecycle, requests, turns
from kasmon.model.reducers.evidence import record_signal
from kasmon.model.reducers.sandbox import apply_sandbox
from kasmon.model.reducers.state import update_state
from kasmon.model.sandbox.state import housed
from kasmon.model.session import Session, last_line
from kasmon.model.session_state import SessionState
from kasmon.model.work_progress import progressed

REST: Final = frozenset({SessionState.STARTING, SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED})
"""States in which work starts another turn, in a terminal too."""


def apply(session: Session, event: Event) -> Session:
    """Return *session* after *event*. Pure; an event that does not fit the state changes nothing."""
    after = _apply_details(session, event)
    if (progress := progressed(session.progress, event)) is not session.progress:
        after = msgspec.structs.replace(after, progress=progress)
    if (housing := housed(session.housing, event)) is not session.housing:
        after = apply_sandbox(session, after, housing, event)
    return turns.finished(session, _clear_expired(session, update_state(session, after, event), event), event)


def _apply_details(session: Session, event: Event) -> Session:
    """Return *session* with the changes by *event*, except of its state."""
    put = msgspec.structs.replace
    match event:  # the most frequent events come first
        case SignalSeen():
            return record_signal(session, event)
        case MessageWritten():
            return put(session, last_line=last_line(event.text) or session.last_line)
        case ToolStarted():
            return put(session, last_line=f"{event.tool} {event.title}".strip())
        case ThoughtWritten() | ToolFinished() | PartialTextWritten():
            return session
        case SessionRenamed():
            return put(session, name=event.name)
        case SessionViewed():
            return put(session, viewed_at=max(event.at, session.viewed_at))
        case SessionForgotten():
            return put(session, forgotten=True)
        case SessionStarted():
            return lifecycle.started(session, event)
        case SessionEnded():
            return lifecycle.ended(session, event)
        case ConnectionLost():
            return lifecycle.lose_connection(session, event)
        case ConnectionRestored():
            return lifecycle.restore_connection(session, event)
        case TurnStarted():
            return put(session, turns=session.turns + 1, in_turn=True, turn_ended="", turn_error="")
        case TurnEnded():
            return turns.ended(session, event)
        case NoticeRaised():
            return put(session, last_line=last_line(event.text))
        case UsageReported():
            return turns.used(session, event)
        case SettingsChanged():
            return lifecycle.set_up(session, event)
        case LimitReached():
            return put(session, limited_until=event.until, last_line=last_line(event.text) or session.last_line)
        case StuckSeen():
            return put(session, stuck=bool(event.why), stuck_why=event.why)
        case ContextReported():
            return turns.report_context(session, event)
        case RequestOpened():
            return requests.opened(session, event.request)
        case RequestAnswered():
            return requests.answered(session, event)
        case RequestWithdrawn():
            return requests.withdrawn(session, event.request, event.why, event.at)
        case RequestSetAside():
            return requests.set_aside(session, event.request)
        case ReceiptMoved():
            return lifecycle.moved(session, event.receipt)
        case QueueOrdered():
            return put(session, receipts=lifecycle.ordered(session.receipts, event.receipts))
        case (
            LogOpened()
            | SessionCreated()
            | PlanUpdated()
            | UnknownMessageSeen()
            | LimitLifted()
            | SandboxMoved()
            | ConfinementSeen()
            | SandboxMeasured()
            | Checkpointed()
            | EntryImported()
            | UnknownEvent()
        ):
            return session


def _begins_turn(before: Session, after: Session, event: Event) -> bool:
    """Whether *event* begins another turn of an agent in a terminal, or restarts it."""
    if isinstance(event, SignalSeen) and event.tells_failure:
        return False
    works = after.state is SessionState.WORKING and before.state is not SessionState.WORKING
    asks = after.state is SessionState.ASKING and before.state in REST
    return works or asks or isinstance(event, SessionStarted)


def _clear_expired(before: Session, after: Session, event: Event) -> Session:
    """Return *after* without values that only hold while it works or until its next turn, if that is over."""
    begins = before.state in REST and after.state is SessionState.WORKING
    if after.waits and (begins or isinstance(event, TurnStarted | SessionStarted | SessionEnded)):
        after = msgspec.structs.replace(after, waits="")
    if after.turn_error and after.mode is Mode.TMUX and _begins_turn(before, after, event):
        after = msgspec.structs.replace(after, turn_ended="", turn_error="")
    if after.done is not None and isinstance(event, SessionStarted):
        after = msgspec.structs.replace(after, done=None)
    if after.stuck and after.state is not SessionState.WORKING:
        after = msgspec.structs.replace(after, stuck=False, stuck_why="")
    return after
