"""Who needs a person, why, and who first: by kind, by how long, and by how many peers wait along. Pure.

| kind, the most pressing first | when |
|---|---|
| asking | a request waits that nobody set aside |
| finished | a turn ended that no person has looked at |
| lost | nobody can talk to it any more |
| crashed | it ended, and nobody asked for that |
| stuck | it works, and nothing comes of it |
| unsure | nobody can tell what it does |
| set aside | all that it asks was set aside |

Within a kind stands first who costs most: its own time, and that of each peer of its wave that is done and waits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState


class AttentionReason(StrEnum):
    """Why a session needs a person; the most pressing first."""

    ASKING = "asking"
    FINISHED = "finished"
    LOST = "lost"
    CRASHED = "crashed"
    STUCK = "stuck"
    UNSURE = "unsure"
    ASIDE = "snoozed"


RANKS: Final = {need: rank for rank, need in enumerate(AttentionReason)}
WAITING: Final = frozenset({SessionState.IDLE, SessionState.STANDBY, SessionState.PAUSED, SessionState.ENDED})
"""States in which a session of a wave has done its part, and waits for the others."""
LEAST_S: Final = 1.0
"""Who only just began to wait counts as waiting for so long, in seconds, so that its peers count at once."""

Waves: TypeAlias = Counter[tuple[str, int]]
"""How many sessions of each wave wait for the others; by plan and number."""


def need(session: Session) -> AttentionReason | None:
    """Why *session* needs a person; None if it does not."""
    if session.has_host_request:
        return AttentionReason.ASKING
    if session.is_unviewed:
        return AttentionReason.FINISHED
    match session.state:
        case SessionState.ASKING:
            return (
                AttentionReason.ASIDE
                if session.asks and all(ask.later for ask in session.asks)
                else AttentionReason.ASKING
            )
        case SessionState.LOST:
            return AttentionReason.LOST
        case SessionState.UNSURE:
            return AttentionReason.UNSURE
        case SessionState.WORKING if session.stuck:
            return AttentionReason.STUCK
    return AttentionReason.CRASHED if session.crashed else None


def waits_since(session: Session) -> float:
    """Since when *session* needs a person, in seconds since the epoch: its oldest request that is not set aside."""
    asked = [ask.asked_at for ask in session.asks if not ask.later]
    return min(asked) if asked else session.since


def waiting_peers(sessions: Iterable[Session]) -> Waves:
    """How many of each wave have done their part, and wait for the others."""
    return Counter(
        (session.plan or "", session.wave)
        for session in sessions
        if session.wave is not None and session.state in WAITING and not session.crashed
    )


def pressing(sessions: Iterable[Session], now: float, waves: Waves | None = None) -> tuple[Session, ...]:
    """Those of *sessions* that need a person, the most pressing first.

    Args:
        now: seconds since the epoch.
        waves: who waits in which wave, where others than *sessions* count too.
    """
    sessions = tuple(sessions)
    waves = waiting_peers(sessions) if waves is None else waves

    def place(session: Session) -> tuple[int, float, str]:
        why = need(session)
        held = 0 if session.wave is None else waves[session.plan or "", session.wave]
        cost_s = max(now - waits_since(session), LEAST_S) * (1 + held)
        return (len(RANKS) if why is None else RANKS[why], -cost_s, session.id)

    return tuple(sorted((session for session in sessions if need(session) is not None), key=place))


def next_pressing(order: Sequence[Session], after: SessionId | None) -> Session | None:
    """The session that a person goes to next who is at *after*: the one below it in *order*, at its end the first.

    None if nobody else needs a person.
    """
    ids = [session.id for session in order]
    at = ids.index(after) + 1 if after in ids else 0
    others = (*order[at:], *order[:at])
    return next((session for session in others if session.id != after), None)
