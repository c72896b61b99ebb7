"""The requests of a session: opened, answered, set aside, and withdrawn where nobody can answer them any more."""

from typing import Final

import msgspec

from kasmon.model.event import RequestAnswered
from kasmon.model.permission import Closed, Request, RequestId
from kasmon.model.session import Session, number
from kasmon.model.state import SessionState

KEPT_CLOSED: Final = 50


def opened(session: Session, request: Request) -> Session:
    """*session* with *request* open; one that comes after the end only counts."""
    counted = max(session.requests_counted, number(request.id, session.requests_counted + 1))
    known = session.state is SessionState.ENDED or session.open_request(request.id) is not None
    asks = session.asks if known else (*session.asks, request)
    return msgspec.structs.replace(session, asks=asks, requests_counted=counted)


def answered(session: Session, event: RequestAnswered) -> Session:
    """*session* with the request closed that *event* answers, and by whom."""
    closed = Closed(id=event.request, decision=event.decision, by=event.by, at=event.at, who=event.who, rule=event.rule)
    return _closed(session, closed)


def withdrawn(session: Session, request: RequestId, why: str, at: float) -> Session:
    """*session* with *request* closed unanswered: *why*, and since when, in seconds since the epoch."""
    return _closed(session, Closed(id=request, decision=None, by=why, at=at))


def all_withdrawn(session: Session, why: str, at: float) -> Session:
    """*session* with none of its requests open any more; *why* and *at* as for `withdrawn`."""
    for ask in session.asks:
        session = withdrawn(session, ask.id, why, at)
    return session


def set_aside(session: Session, request: RequestId) -> Session:
    """*session* with *request* open, for later."""
    asks = tuple(msgspec.structs.replace(ask, later=True) if ask.id == request else ask for ask in session.asks)
    return msgspec.structs.replace(session, asks=asks)


def _closed(session: Session, closed: Closed) -> Session:
    """*session* with one request fewer open; one that is not open changes nothing."""
    if session.open_request(closed.id) is None:
        return session
    asks = tuple(ask for ask in session.asks if ask.id != closed.id)
    return msgspec.structs.replace(session, asks=asks, closed=(*session.closed, closed)[-KEPT_CLOSED:])
