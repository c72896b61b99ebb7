"""The signals of a session: the latest of each source, and the state of a terminal session that follows from them."""

import msgspec

from kasmon.model.events import SignalSeen
from kasmon.model.evidence import judge, replace_signal
from kasmon.model.session import Session, last_line
from kasmon.model.session_state import SessionState

S = SessionState


def record_signal(session: Session, event: SignalSeen) -> Session:
    """Return *session* with *event* as the latest signal of its source."""
    signals = replace_signal(session.signals, event)
    after = msgspec.structs.replace(session, signals=signals, last_line=last_line(event.text) or session.last_line)
    if event.tells_failure:
        error = event.text or session.turn_error or "its turn ended in an error"
        return msgspec.structs.replace(after, turn_ended="error", turn_error=error)
    if event.source == "hook" and event.prompt and session.turn_error:  # another turn, or the running one continued
        return msgspec.structs.replace(after, turn_ended="", turn_error="")
    return after


def apply_verdict(session: Session, now: float, *, since: float | None = None) -> Session:
    """Return terminal session *session* with the state that follows from its signals at *now*.

    Args:
        since: since when it is in that state; None: unchanged if the state is the same, else *now*.
    """
    verdict = judge(session.signals, now)
    return msgspec.structs.replace(
        session,
        state=verdict.state,
        source=verdict.source,
        unsure_why=verdict.why if verdict.state is S.UNSURE else None,
        end_why=verdict.why if verdict.state is S.ENDED else "" if session.source == "process" else session.end_why,
        asking=verdict.asking,
        limited_until=verdict.until,
        recheck_at=verdict.recheck_at,
        since=since if since is not None else session.since if verdict.state is session.state else now,
        in_turn=session.in_turn and verdict.state is not S.ENDED,
    )
