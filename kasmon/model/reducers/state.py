"""The state of a session after an event.

How the state is determined:

| agent | state after an event |
|---|---|
| any | SessionEnded -> ended; ConnectionLost -> lost until ConnectionRestored or the next SessionStarted |
| any, after HibernationBegun | either of these -> hibernated |
| with a protocol | by `NEXT`; asking while a request of its own is open, limited until the limit is lifted |
| in a terminal | by `evidence.judge` from the latest signal of each source |
| interpreters in a sandbox | as with a protocol, and by the phase of their sandbox (`sandbox_state.state_of`) |
"""

from typing import Final

import msgspec

from kasmon.model.commands import Mode
from kasmon.model.events import (
    BaseEvent,
    ConnectionLost,
    ConnectionRestored,
    Event,
    LimitLifted,
    LimitReached,
    SandboxPhaseChanged,
    SessionEnded,
    SessionStarted,
    SignalSeen,
    TurnEnded,
    TurnStarted,
)
from kasmon.model.permission import Request
from kasmon.model.reducers.evidence import apply_verdict
from kasmon.model.reducers.sandbox import ASLEEP, apply_pause, find_phase_state
from kasmon.model.session import Session
from kasmon.model.session_state import OVER, SessionState

S = SessionState
NEXT: dict[SessionState, dict[type[BaseEvent], SessionState]] = {
    S.STARTING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.IDLE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, LimitReached: S.LIMITED},
    S.WORKING: {SessionStarted: S.IDLE, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.ASKING: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE, LimitReached: S.LIMITED},
    S.LIMITED: {SessionStarted: S.IDLE, LimitLifted: S.WORKING, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.PAUSED: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.STANDBY: {SessionStarted: S.IDLE, TurnStarted: S.WORKING},
    S.UNSURE: {SessionStarted: S.IDLE, TurnStarted: S.WORKING, TurnEnded: S.IDLE},
    S.LOST: {SessionStarted: S.IDLE, ConnectionRestored: S.UNSURE},
    S.ENDED: {SessionStarted: S.IDLE},
    S.HIBERNATED: {SessionStarted: S.IDLE},
}
"""Agents with a protocol: state -> event -> state. SessionEnded ends every state, ConnectionLost loses every one but
ENDED and HIBERNATED; an open request of the agent makes STARTING, IDLE, WORKING and UNSURE ASKING. A request of the
host, such as one for a refused network host, changes no state, since the agent does not wait for its answer."""

ASKABLE: Final = frozenset({S.STARTING, S.IDLE, S.WORKING, S.ASKING, S.UNSURE})
LINE_WAS_LOST: Final = "the connection was lost for a while"
_UNMOVED: Final[dict[type[BaseEvent], frozenset[SessionState]]] = {
    SignalSeen: OVER | {S.LOST},
    ConnectionRestored: frozenset(SessionState) - {S.LOST},
}
"""Events that do not affect a terminal agent in these states."""


def update_state(before: Session, after: Session, event: Event) -> Session:
    state, source, why, asking = before.state, before.source, before.unsure_why, after.asking
    if isinstance(event, SessionEnded):
        ended = S.ENDED if after.freed_bytes is None else S.HIBERNATED
        state, source, why, asking = ended, "exit", None, None
    elif isinstance(event, ConnectionLost):
        if before.state in OVER:
            return after
        lost = S.LOST if after.freed_bytes is None else S.HIBERNATED
        state, source, why, asking = lost, "host", None, None
    elif isinstance(event, SandboxPhaseChanged) and after.mode is not Mode.INTERPRETER:
        return apply_pause(before, after, event)
    elif isinstance(event, SignalSeen) and before.state in ASLEEP:
        return after  # it is paused, whatever its screen shows
    elif isinstance(event, SessionStarted | SignalSeen | ConnectionRestored) and after.mode is Mode.TMUX:
        if before.state in _UNMOVED.get(type(event), ()) and before.source != "process":
            return after
        return apply_verdict(after, event.at, since=event.at if isinstance(event, SessionStarted) else None)
    elif after.mode is not Mode.TMUX:
        state = find_phase_state(before, after, event) or _next(before, after, event)
        source = "protocol" if state is not before.state or isinstance(event, SessionStarted) else before.source
        why = (before.unsure_why or LINE_WAS_LOST) if state is S.UNSURE else None
        asking = _own_requests(after)[0].kind if state is S.ASKING else None
    changed = state is not before.state or isinstance(event, SessionStarted | SessionEnded)
    return msgspec.structs.replace(
        after,
        state=state,
        source=source,
        unsure_why=why,
        asking=asking,
        since=event.at if changed else before.since,
        in_turn=after.in_turn and state not in OVER,
        limited_until=after.limited_until if state is S.LIMITED else None,
    )


def _next(before: Session, after: Session, event: Event) -> SessionState:
    """Return the state of an agent with a protocol: by `NEXT`, its open requests, and whether a turn is running."""
    if isinstance(event, TurnEnded) and event.reason == "limit" and before.state is S.LIMITED:
        return S.LIMITED
    state = NEXT[before.state].get(type(event), before.state)
    if state in ASKABLE and _own_requests(after):
        return S.ASKING
    if state is S.ASKING or (state is S.WORKING and isinstance(event, LimitLifted)):
        return S.WORKING if after.in_turn else S.IDLE if after.generation else S.STARTING
    return state


def _own_requests(session: Session) -> tuple[Request, ...]:
    """Return the open requests whose answers the agent waits for."""
    return tuple(ask for ask in session.requests if not ask.by_host)
