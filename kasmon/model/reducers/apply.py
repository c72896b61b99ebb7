"""Apply an event to a session: `apply`. Events are never refused: one that does not fit the state changes nothing."""

from typing import Final

import msgspec

from kasmon.model import events
from kasmon.model.agent_program import is_interactive
from kasmon.model.commands import ConversationUsage, Mode
from kasmon.model.limits.window import merge_windows
from kasmon.model.reducers import lifecycle, session_requests
from kasmon.model.reducers.evidence import record_signal
from kasmon.model.reducers.sandbox import apply_sandbox
from kasmon.model.reducers.session_requests import withdraw_all
from kasmon.model.reducers.state import update_state
from kasmon.model.sandbox.state import apply_sandbox_event
from kasmon.model.session import DAY_S, Session, Tokens, last_line
from kasmon.model.session_state import RESTING, SessionState
from kasmon.model.work_progress import update_progress

REST: Final = RESTING | {SessionState.STARTING}
"""States in which work starts another turn, in a terminal too."""


def apply(session: Session, event: events.Event) -> Session:
    """Return *session* after *event*. Pure; an event that does not fit the state changes nothing."""
    after = _apply_details(session, event)
    if (progress := update_progress(session.progress, event)) is not session.progress:
        after = msgspec.structs.replace(after, progress=progress)
    if (sandbox_state := apply_sandbox_event(session.sandbox_state, event)) is not session.sandbox_state:
        after = apply_sandbox(session, after, sandbox_state, event)
    return note_turn_end(session, _clear_expired(session, update_state(session, after, event), event), event)


def _apply_details(session: Session, event: events.Event) -> Session:
    """Return *session* with the changes by *event*, except of its state."""
    put = msgspec.structs.replace
    match event:  # the most frequent events come first
        case events.SignalSeen():
            return record_signal(session, event)
        case events.MessageWritten():
            return put(session, last_line=last_line(event.text) or session.last_line)
        case events.ToolStarted():
            return put(session, last_line=f"{event.tool} {event.title}".strip())
        case events.ThoughtWritten() | events.ToolFinished() | events.PartialTextWritten():
            return session
        case events.SessionRenamed():
            return put(session, name=event.name)
        case events.SessionTagged():
            return put(session, tags=tuple(sorted({*session.tags, *event.added} - {*event.removed})))
        case events.SessionViewed():
            return put(session, viewed_at=max(event.at, session.viewed_at))
        case events.SessionForgotten():
            return put(session, forgotten=True)
        case events.SessionStarted():
            return lifecycle.apply_start(session, event)
        case events.SessionEnded():
            return lifecycle.apply_end(session, event)
        case events.ConnectionLost():
            return lifecycle.lose_connection(session, event)
        case events.ConnectionRestored():
            return lifecycle.restore_connection(session, event)
        case events.TurnStarted():
            turns = session.turns + 1
            fresh = put(session, turns=turns, in_turn=True, turn_ended="", turn_error="", finish_proposed="")
            return put(fresh, log_in=None)
        case events.TurnEnded():
            return end_turn(session, event)
        case events.NoticeRaised():
            return put(session, last_line=last_line(event.text))
        case events.UsageReported():
            return note_usage(session, event)
        case events.SettingsChanged():
            return lifecycle.set_up(session, event)
        case events.LogInRequired():
            return put(session, log_in=event.log_in)
        case events.LimitReached():
            return put(session, limited_until=event.until, last_line=last_line(event.text) or session.last_line)
        case events.LimitsReported():
            return put(session, limit_windows=merge_windows(session.limit_windows, event.windows))
        case events.HibernationBegun():
            return put(session, freed_bytes=event.freed_bytes)
        case events.StuckSeen():
            return put(session, stuck=bool(event.why), stuck_why=event.why)
        case events.ContextReported():
            return report_context(session, event)
        case events.FinishProposed():
            return put(session, finish_proposed=event.text, finish_proposed_by=event.name, finish_proposed_at=event.at)
        case events.PeerMessageWritten():
            return put(session, peer_messages=session.peer_messages + 1)
        case events.RequestOpened():
            return session_requests.open_request(session, event.request)
        case events.RequestAnswered():
            return session_requests.apply_answer(session, event)
        case events.RequestWithdrawn():
            return session_requests.withdraw(session, event.request, event.why, event.at)
        case events.RequestSetAside():
            return session_requests.set_aside(session, event.request)
        case events.ReceiptChanged():
            return lifecycle.put_receipt(session, event.receipt)
        case events.QueueOrdered():
            return put(session, receipts=lifecycle.order_receipts(session.receipts, event.receipts))
        case (
            events.LogOpened()
            | events.SessionCreated()
            | events.PlanUpdated()
            | events.CommandsAnnounced()
            | events.SubtaskChanged()
            | events.AgentCommandReceived()
            | events.UnknownMessageSeen()
            | events.LimitLifted()
            | events.CommentWritten()
            | events.CommentRemoved()
            | events.CommentsSent()
            | events.CommentMarked()
            | events.SandboxPhaseChanged()
            | events.ConfinementSeen()
            | events.SandboxMeasured()
            | events.Checkpointed()
            | events.EntryImported()
            | events.UnknownEvent()
        ):
            return session


def _begins_turn(before: Session, after: Session, event: events.Event) -> bool:
    """Whether *event* begins another turn of an agent in a terminal, or restarts it."""
    if isinstance(event, events.SignalSeen) and event.tells_failure:
        return False
    works = after.state is SessionState.WORKING and before.state is not SessionState.WORKING
    asks = after.state is SessionState.ASKING and before.state in REST
    return works or asks or isinstance(event, events.SessionStarted)


def _clear_expired(before: Session, after: Session, event: events.Event) -> Session:
    """Return *after* without values that only hold while it works or until its next turn, if that is over."""
    begins = before.state in REST and after.state is SessionState.WORKING
    if after.waits and (begins or isinstance(event, events.TurnStarted | events.SessionStarted | events.SessionEnded)):
        after = msgspec.structs.replace(after, waits="")
    if after.turn_error and after.mode is Mode.TMUX and _begins_turn(before, after, event):
        after = msgspec.structs.replace(after, turn_ended="", turn_error="")
    if after.done is not None and isinstance(event, events.SessionStarted):
        after = msgspec.structs.replace(after, done=None)
    if after.stuck and after.state is not SessionState.WORKING:
        after = msgspec.structs.replace(after, stuck=False, stuck_why="")
    return after


def end_turn(session: Session, event: events.TurnEnded) -> Session:
    """Return *session* with the end of its turn; the agent's open requests are withdrawn."""
    line = last_line(event.error) or session.last_line
    over = withdraw_all(session, "the turn ended", event.at, spares_hosts=True)
    return msgspec.structs.replace(over, last_line=line, in_turn=False, turn_ended=event.reason, turn_error=event.error)


def note_turn_end(before: Session, after: Session, event: events.Event) -> Session:
    """Return *after* with the time its last turn ended, unless a person interrupted it and so knows already.

    A terminal agent reports no turns: a turn is work that began after it was ready, or on a prompt, and ended idle.
    """
    if isinstance(event, events.TurnEnded):
        at = after.finished_at if event.reason == "interrupted" else event.at
        return msgspec.structs.replace(after, finished_at=at, worked=False)
    if isinstance(event, events.SessionStarted):
        return msgspec.structs.replace(after, worked=False)
    if after.mode is not Mode.TMUX or not after.program or is_interactive(after.program):
        return after
    if after.state is SessionState.WORKING and not after.worked:
        is_turn = before.state is not SessionState.STARTING or bool(after.receipts)
        return msgspec.structs.replace(after, worked=is_turn)
    if after.worked and after.state is SessionState.IDLE:
        return msgspec.structs.replace(after, worked=False, finished_at=after.since)
    return after


def note_usage(session: Session, event: events.UsageReported) -> Session:
    """Return *session* with its usage so far; a cost missing in *event* is unchanged."""
    known = session.tokens.filled_by if session.tokens is not None and event.context else ()
    filled_by = event.filled_by or known
    tokens = Tokens(
        input=event.input, output=event.output, context=event.context, limit=event.limit, filled_by=filled_by
    )
    cost_usd = session.cost_usd if event.cost_usd is None else event.cost_usd
    if (day := int(event.at // DAY_S)) > session.usage_day:
        earlier = session.tokens or Tokens()
        before = ConversationUsage(input=earlier.input, output=earlier.output, cost_usd=session.cost_usd)
        session = msgspec.structs.replace(session, usage_day=day, used_before_day=before)
    return msgspec.structs.replace(session, tokens=tokens, cost_usd=cost_usd)


def report_context(session: Session, event: events.ContextReported) -> Session:
    """Return *session* with the status its agent reported; one that waits deliberately is not stuck."""
    waits = session.waits if event.waiting is None else event.waiting
    is_stuck = session.stuck and not waits
    return msgspec.structs.replace(
        session,
        waits=waits,
        done=session.done if event.done is None else event.done,
        stuck=is_stuck,
        stuck_why=session.stuck_why if is_stuck else "",
    )
