"""Which sessions need a person, why, and in which order: by kind, waiting time, and number of waiting peers. Pure.

| kind, the most pressing first | when |
|---|---|
| asking | a request is open and not set aside |
| finished | a turn ended and no person has viewed it |
| lost | kasmon cannot reach the agent any more |
| crashed | it ended without a request to stop |
| stuck | it works without progress |
| unsure | its state is unknown |
| set aside | all its requests were set aside |

Within a kind, the highest cost comes first: the session's own waiting time, plus that of each peer that waits for it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import RESTING, SessionState


class AttentionReason(StrEnum):
    """Why a session needs a person, most pressing first."""

    ASKING = "asking"
    FINISHED = "finished"
    LOST = "lost"
    CRASHED = "crashed"
    STUCK = "stuck"
    UNSURE = "unsure"
    ASIDE = "snoozed"


RANKS: Final = {need: rank for rank, need in enumerate(AttentionReason)}
WAITING: Final = RESTING | {SessionState.ENDED}
"""States in which a session of a wave has done its part and waits for the others."""
LEAST_S: Final = 1.0
"""The minimum waiting time that is counted, in seconds, so that peers count at once."""

Waves: TypeAlias = Counter[tuple[str, int]]
"""The number of sessions of each wave that wait for the others, by plan and wave number."""


def need(session: Session) -> AttentionReason | None:
    """Return why *session* needs a person; None if it does not."""
    if session.has_host_request:
        return AttentionReason.ASKING
    if session.is_unviewed:
        return AttentionReason.FINISHED
    match session.state:
        case SessionState.ASKING:
            return (
                AttentionReason.ASIDE
                if session.requests and all(ask.later for ask in session.requests)
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
    """Return since when *session* needs a person, in seconds since the epoch: by its oldest request not set aside."""
    asked = [ask.asked_at for ask in session.requests if not ask.later]
    return min(asked) if asked else session.since


def waiting_peers(sessions: Iterable[Session]) -> Waves:
    """Count the sessions of each wave that have done their part and wait for the others."""
    return Counter(
        (session.plan or "", session.wave)
        for session in sessions
        if session.wave is not None and session.state in WAITING and not session.crashed
    )


def pressing(sessions: Iterable[Session], now: float, waves: Waves | None = None) -> tuple[Session, ...]:
    """Return those of *sessions* that need a person, most pressing first.

    Args:
        now: seconds since the epoch.
        waves: the number of waiting sessions in each wave, where others than *sessions* count too.
    """
    sessions = tuple(sessions)
    waves = waiting_peers(sessions) if waves is None else waves

    def sort_key(session: Session) -> tuple[int, float, str]:
        why = need(session)
        held = 0 if session.wave is None else waves[session.plan or "", session.wave]
        cost_s = max(now - waits_since(session), LEAST_S) * (1 + held)
        return (len(RANKS) if why is None else RANKS[why], -cost_s, session.id)

    return tuple(sorted((session for session in sessions if need(session) is not None), key=sort_key))


def next_pressing(order: Sequence[Session], after: SessionId | None) -> Session | None:
    """Return the session to visit after *after*: the one below it in *order*, or the first one at the end.

    None if no other session needs a person.
    """
    ids = [session.id for session in order]
    at = ids.index(after) + 1 if after in ids else 0
    others = (*order[at:], *order[:at])
    return next((session for session in others if session.id != after), None)
