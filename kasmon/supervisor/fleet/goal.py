"""Whether sessions are in the states that a caller waits for. Pure, and light: `kasmon wait` is often already true."""

from collections.abc import Collection, Sequence

from kasmon.errors import RefusedError, SessionEndedError, SessionNotFoundError
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState


def is_between(session: Session) -> bool:
    """Whether *session* is idle only until the prompt that it was sent begins its turn."""
    return session.state is SessionState.IDLE and session.awaits_turn


def find_matching(
    fleet: Fleet, requested: Sequence[SessionId], states: Collection[SessionState], any_suffices: bool
) -> tuple[Session, ...]:
    """Return the sessions that are in one of *states*, if all are, or with *any_suffices* one; else nothing.

    Raises:
        SessionNotFoundError: if one does not exist.
        SessionEndedError, RefusedError: if the states cannot be reached any more.
    """
    sessions = [fleet.get(session) for session in requested]
    for session, name in zip(sessions, requested, strict=True):
        if session is None:
            raise SessionNotFoundError(name)
    existing = [session for session in sessions if session is not None]
    matching = tuple(session for session in existing if session.state in states and not is_between(session))
    if len(matching) == len(existing) or (any_suffices and matching):
        return matching
    stopped = [session for session in existing if session.state not in ALIVE and session.state not in states]
    if len(stopped) == len(existing) or (stopped and not any_suffices):
        raise _unreachable_error(stopped[0], states)
    return ()


def _unreachable_error(session: Session, states: Collection[SessionState]) -> RefusedError:
    if session.state is SessionState.ENDED:
        return SessionEndedError(session.name)
    return RefusedError(
        f"session {session.name!r} is {session.state}, so it will not be {' or '.join(sorted(states))}.",
        hint=f"`kasmon restart {session.id}` starts it again.",
    )
