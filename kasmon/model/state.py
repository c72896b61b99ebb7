"""The states of a session, and which of them need a person."""

from enum import StrEnum


class SessionState(StrEnum):
    """What a session is doing, as far as anybody knows."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    ASKING = "asking"
    LIMITED = "limited"
    PAUSED = "paused"
    STANDBY = "standby"
    UNSURE = "unsure"
    LOST = "lost"
    ENDED = "ended"


ALIVE = frozenset(set(SessionState) - {SessionState.LOST, SessionState.ENDED})
"""States in which the agent is believed to run."""

ATTENTION = {
    SessionState.ASKING: 0,
    SessionState.LOST: 1,
    SessionState.UNSURE: 3,
    SessionState.LIMITED: 4,
    SessionState.IDLE: 5,
    SessionState.STARTING: 6,
    SessionState.WORKING: 7,
    SessionState.PAUSED: 8,
    SessionState.STANDBY: 8,
    SessionState.ENDED: 9,
}
"""The order of the list: who needs a person stands first. A crash (an ending that nobody asked for) ranks 2."""
