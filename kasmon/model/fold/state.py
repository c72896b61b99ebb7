"""The state of a session after a fact.

How a state comes about:

| agent | state after a fact |
|---|---|
| any | SessionEnded -> ended; LineLost -> lost until LineFound or the next SessionStarted |
| with a protocol | by `NEXT`; asking while a request is open, limited until the limit is lifted |
| in a terminal | by `evidence.judge` over the last word of each source |
| interpreters in a sandbox | as with a protocol, and by the phase of their sandbox (`housing.state_of`) |
"""

from typing import Final

import msgspec

from kasmon.model.command import Mode
from kasmon.model.event import (
    Event,
    Fact,
    LimitLifted,
    LimitReached,
    LineFound,
    LineLost,
    SandboxMoved,
    SessionEnded,
    SessionStarted,
    SignalSeen,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.fold.sandbox import ASLEEP, dozed, phased
from kasmon.model.fold.signal import judged
from kasmon.model.session import Session
from kasmon.model.state import SessionState

S = SessionState
NEXT: dict[SessionState, dict[type[Fact], SessionState]] = {
    S.STARTING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.IDLE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, LimitReached: S.LIMITED},
    S.WORKING: {SessionStarted: S.IDLE, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.ASKING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.LIMITED: {SessionStarted: S.IDLE, LimitLifted: S.WORKING, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.PAUSED: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.STANDBY: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.UNSURE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.LOST: {SessionStarted: S.IDLE, LineFound: S.UNSURE},
    S.ENDED: {SessionStarted: S.IDLE},
}
"""Agents with a protocol: state -> fact -> state. SessionEnded ends every state, LineLost loses every one but ENDED; an
open request makes STARTING, IDLE, WORKING and UNSURE ASKING."""

ASKABLE: Final = frozenset({S.STARTING, S.IDLE, S.WORKING, S.ASKING, S.UNSURE})
LINE_WAS_LOST: Final = "the line to it was lost for a while"
_UNMOVED: Final[dict[type[Fact], frozenset[SessionState]]] = {
    SignalSeen: frozenset({S.ENDED, S.LOST}),
    LineFound: frozenset(SessionState) - {S.LOST},
}
"""What says nothing about a terminal agent in these states."""


def restated(before: Session, noted: Session, event: Event) -> Session:
    """*noted* with the state that follows from *event*."""
    state, source, why, asking = before.state, before.source, before.unsure_why, noted.asking
    if isinstance(event, SessionEnded):
        state, source, why, asking = S.ENDED, "exit", None, None
    elif isinstance(event, LineLost):
        if before.state is S.ENDED:
            return noted
        state, source, why, asking = S.LOST, "host", None, None
    elif isinstance(event, SandboxMoved) and noted.mode is not Mode.INTERPRETER:
        return dozed(before, noted, event)
    elif isinstance(event, SignalSeen) and before.state in ASLEEP:
        return noted  # it stands still, whatever its screen says
    elif isinstance(event, SessionStarted | SignalSeen | LineFound) and noted.mode is Mode.TMUX:
        if before.state in _UNMOVED.get(type(event), ()) and before.source != "process":
            return noted
        return judged(noted, event.at, since=event.at if isinstance(event, SessionStarted) else None)
    elif noted.mode is not Mode.TMUX:
        state = phased(before, noted, event) or _next(before, noted, event)
        source = "protocol" if state is not before.state or isinstance(event, SessionStarted) else before.source
        why = (before.unsure_why or LINE_WAS_LOST) if state is S.UNSURE else None
        asking = noted.asks[0].kind if state is S.ASKING else None
    changed = state is not before.state or isinstance(event, SessionStarted | SessionEnded)
    return msgspec.structs.replace(
        noted,
        state=state,
        source=source,
        unsure_why=why,
        asking=asking,
        since=event.at if changed else before.since,
        in_turn=noted.in_turn and state is not S.ENDED,
        limited_until=noted.limited_until if state is S.LIMITED else None,
    )


def _next(before: Session, noted: Session, event: Event) -> SessionState:
    """The state of an agent with a protocol: by `NEXT`, by its open requests, and by whether a turn runs."""
    if isinstance(event, TurnEnded) and event.reason == "limit" and before.state is S.LIMITED:
        return S.LIMITED
    state = NEXT[before.state].get(type(event), before.state)
    if state in ASKABLE and noted.asks:
        return S.ASKING
    if state is S.ASKING or (state is S.WORKING and isinstance(event, LimitLifted)):
        return S.WORKING if noted.in_turn else S.IDLE if noted.generation else S.STARTING
    return state
