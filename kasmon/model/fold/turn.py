"""A session whose agent says how its turn goes: that it is over, what it used, that it waits or is done."""

import msgspec

from kasmon.model.event import ContextSaid, TurnEnded, UsageReported
from kasmon.model.fold.request import all_withdrawn
from kasmon.model.session import Session, Tokens, last_line


def ended(session: Session, event: TurnEnded) -> Session:
    """*session* with how its turn ended; nobody can answer any more what it asked."""
    line = last_line(event.error) or session.last_line
    over = all_withdrawn(session, "the turn ended", event.at)
    return msgspec.structs.replace(over, last_line=line, in_turn=False, turn_ended=event.reason, turn_error=event.error)


def used(session: Session, event: UsageReported) -> Session:
    """*session* with what it has used so far; a cost that *event* does not tell is as it was."""
    tokens = Tokens(input=event.input, output=event.output, context=event.context, limit=event.limit)
    cost_usd = session.cost_usd if event.cost_usd is None else event.cost_usd
    return msgspec.structs.replace(session, tokens=tokens, cost_usd=cost_usd)


def stands(session: Session, event: ContextSaid) -> Session:
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
