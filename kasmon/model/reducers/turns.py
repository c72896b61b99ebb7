"""Turn events of a session: the end of a turn, usage, and the status that the agent reports itself."""

import msgspec

from kasmon.model.agent_program import is_interactive
from kasmon.model.commands import Mode
from kasmon.model.events import ContextReported, Event, SessionStarted, TurnEnded, UsageReported
from kasmon.model.reducers.requests import all_withdrawn
from kasmon.model.session import Session, Tokens, last_line
from kasmon.model.session_state import SessionState


def ended(session: Session, event: TurnEnded) -> Session:
    """Return *session* with the end of its turn; the agent's open requests are withdrawn."""
    line = last_line(event.error) or session.last_line
    over = all_withdrawn(session, "the turn ended", event.at, spares_hosts=True)
    return msgspec.structs.replace(over, last_line=line, in_turn=False, turn_ended=event.reason, turn_error=event.error)


def finished(before: Session, after: Session, event: Event) -> Session:
    """Return *after* with the time its last turn ended, unless a person interrupted it and so knows already.

    A terminal agent reports no turns: a turn is work that began after it was ready, or on a prompt, and ended idle.
    """
    if isinstance(event, TurnEnded):
        at = after.finished_at if event.reason == "interrupted" else event.at
        return msgspec.structs.replace(after, finished_at=at, worked=False)
    if isinstance(event, SessionStarted):
        return msgspec.structs.replace(after, worked=False)
    if after.mode is not Mode.TMUX or not after.program or is_interactive(after.program):
        return after
    if after.state is SessionState.WORKING and not after.worked:
        is_turn = before.state is not SessionState.STARTING or bool(after.receipts)
        return msgspec.structs.replace(after, worked=is_turn)
    if after.worked and after.state is SessionState.IDLE:
        return msgspec.structs.replace(after, worked=False, finished_at=after.since)
    return after


def used(session: Session, event: UsageReported) -> Session:
    """Return *session* with its usage so far; a cost missing in *event* is unchanged."""
    tokens = Tokens(input=event.input, output=event.output, context=event.context, limit=event.limit)
    cost_usd = session.cost_usd if event.cost_usd is None else event.cost_usd
    return msgspec.structs.replace(session, tokens=tokens, cost_usd=cost_usd)


def report_context(session: Session, event: ContextReported) -> Session:
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
