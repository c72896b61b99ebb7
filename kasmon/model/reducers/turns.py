"""A session whose agent says how its turn goes: that it is over, what it used, that it waits or is done."""

import msgspec

from kasmon.model.agent_program import is_interactive
from kasmon.model.commands import Mode
from kasmon.model.events import ContextReported, Event, SessionStarted, TurnEnded, UsageReported
from kasmon.model.reducers.requests import all_withdrawn
from kasmon.model.session import Session, Tokens, last_line
from kasmon.model.session_state import SessionState


def ended(session: Session, event: TurnEnded) -> Session:
    """*session* with how its turn ended; nobody can answer any more what it asked."""
    line = last_line(event.error) or session.last_line
    over = all_withdrawn(session, "the turn ended", event.at, spares_hosts=True)
    return msgspec.structs.replace(over, last_line=line, in_turn=False, turn_ended=event.reason, turn_error=event.error)


def finished(before: Session, after: Session, event: Event) -> Session:
    """*after* with when its last turn ended, which a person who interrupted it knows already.

    A terminal agent does not tell: a turn is work after the agent was ready, or on a prompt, that ends at its prompt.
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
    """*session* with what it has used so far; a cost that *event* does not tell is as it was."""
    tokens = Tokens(input=event.input, output=event.output, context=event.context, limit=event.limit)
    cost_usd = session.cost_usd if event.cost_usd is None else event.cost_usd
    return msgspec.structs.replace(session, tokens=tokens, cost_usd=cost_usd)


def stands(session: Session, event: ContextReported) -> Session:
    """*session* with what its agent says of its task; one that waits on purpose is not stuck."""
    waits = session.waits if event.waiting is None else event.waiting
    is_stuck = session.stuck and not waits
    return msgspec.structs.replace(
        session,
        waits=waits,
        done=session.done if event.done is None else event.done,
        stuck=is_stuck,
        stuck_why=session.stuck_why if is_stuck else "",
    )
