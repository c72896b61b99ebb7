"""The changes of state in a session's facts, and which fact made each. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from kasmon.model.command import Mode
from kasmon.model.event import Event, SignalSeen
from kasmon.model.fold.fact import apply
from kasmon.model.fold.signal import judged
from kasmon.model.permission import AskKind
from kasmon.model.session import Session
from kasmon.model.state import SessionState

BY_TIME: Final = "time"
"""What made a change that no fact made: a signal became too old to be believed, or sources disagreed for too long."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of state."""

    at: float
    """In seconds since the epoch."""
    state: SessionState
    source: str
    by: str
    """The fact that made it, by its tag, of a signal with its source; or `BY_TIME`."""
    asking: AskKind | None = None
    why: str = ""
    """Why it is unsure, or how it ended."""


def transitions(session: Session, facts: Iterable[Event], until: float) -> list[Transition]:
    """The changes that *facts*, oldest first, make of *session*, and those that time makes up to *until*."""
    found: list[Transition] = []

    def go_on(after: Session, at: float, by: str) -> Session:
        nonlocal session
        if (after.state, after.asking) != (session.state, session.asking):
            why = after.unsure_why or (after.end_why if after.state is SessionState.ENDED else "")
            found.append(
                Transition(at=at, state=after.state, source=after.source, by=by, asking=after.asking, why=why or "")
            )
        session = after
        return after

    def age(now: float) -> None:
        while session.mode is Mode.TMUX and session.recheck_at is not None and session.recheck_at <= now:
            due_at = session.recheck_at
            aged = judged(session, due_at)
            go_on(aged, due_at, BY_TIME)
            if aged.recheck_at is not None and aged.recheck_at <= due_at:
                return

    for fact in facts:
        age(fact.at)
        go_on(apply(session, fact), fact.at, _name(fact))
    age(until)
    return found


def _name(fact: Event) -> str:
    tag = str(fact.__struct_config__.tag)
    return f"{tag} {fact.source}" if isinstance(fact, SignalSeen) else tag
