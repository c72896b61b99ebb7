"""The states of a session, and which of them need a person."""

from collections.abc import Collection
from enum import StrEnum

from kasmon.errors import UsageError


class SessionState(StrEnum):
    """The activity of a session, as far as known."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    ASKING = "asking"
    LIMITED = "limited"
    PAUSED = "paused"
    STANDBY = "standby"
    HIBERNATED = "hibernated"
    UNSURE = "unsure"
    LOST = "lost"
    ENDED = "ended"


def states_of(names: Collection[SessionState | str]) -> frozenset[SessionState]:
    """Return the states with these *names*. Raises `UsageError` if one of them is no state, or there is none."""
    known = {state.value for state in SessionState}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown state {str(name)!r}.", hint=f"States: {', '.join(SessionState)}.")
    if not names:
        raise UsageError("`--for` requires a state.", hint=f"States: {', '.join(SessionState)}.")
    return frozenset(map(SessionState, names))


OVER = frozenset({SessionState.ENDED, SessionState.HIBERNATED})
"""States in which the agent does not run, and that is known."""
ALIVE = frozenset(set(SessionState) - {SessionState.LOST} - OVER)
"""States in which the agent is believed to run."""

ATTENTION = {
    SessionState.ASKING: 0,
    SessionState.LOST: 2,
    SessionState.UNSURE: 4,
    SessionState.LIMITED: 5,
    SessionState.IDLE: 6,
    SessionState.STARTING: 7,
    SessionState.WORKING: 8,
    SessionState.PAUSED: 9,
    SessionState.STANDBY: 9,
    SessionState.HIBERNATED: 9,
    SessionState.ENDED: 10,
}
"""The order of the list: sessions that need a person come first."""
FINISHED = 1
"""The rank of a session whose last turn ended and that no person has viewed since."""
CRASHED = 3
"""The rank of a session that ended without a request to stop."""
RESTING = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED, SessionState.HIBERNATED})
"""States of a session whose turn is over."""
