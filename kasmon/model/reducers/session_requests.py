"""The requests of a session: opened, answered, set aside, and withdrawn if they can no longer be answered."""

from typing import Final

import msgspec

from kasmon.model.events import RequestAnswered
from kasmon.model.permission import ClosedRequest, Request, RequestId
from kasmon.model.session import Session, number
from kasmon.model.session_state import OVER

KEPT_CLOSED: Final = 50
KEPT_DIFF: Final = 4000
"""The maximum length of a closed request's diff, in characters."""


def open_request(session: Session, request: Request) -> Session:
    """Return *session* with *request* open; one that comes after the end only counts."""
    counted = max(session.requests_counted, number(request.id, session.requests_counted + 1))
    known = session.state in OVER or session.open_request(request.id) is not None
    asks = session.requests if known else (*session.requests, request)
    return msgspec.structs.replace(session, requests=asks, requests_counted=counted)


def apply_answer(session: Session, event: RequestAnswered) -> Session:
    closed = ClosedRequest(
        id=event.request,
        decision=event.decision,
        by=event.by,
        at=event.at,
        who=event.who,
        rule=event.rule,
        diff=_cut_diff(event.diff),
    )
    return _close(session, closed)


def _cut_diff(diff: str) -> str:
    """Return *diff*, truncated for the session; its event has all of it."""
    return diff if len(diff) <= KEPT_DIFF else f"{diff[:KEPT_DIFF]}\n… {len(diff) - KEPT_DIFF:,} more characters"


def withdraw(session: Session, request: RequestId, why: str, at: float) -> Session:
    """Return *session* with *request* closed unanswered: *why*, and *at* in seconds since the epoch."""
    return _close(session, ClosedRequest(id=request, decision=None, by=why, at=at))


def withdraw_all(session: Session, why: str, at: float, *, spares_hosts: bool = False) -> Session:
    """Return *session* with all requests withdrawn; *why* and *at* as for `withdraw`.

    *spares_hosts*: requests of its host stay open.
    """
    for ask in session.requests:
        if spares_hosts and ask.by_host:
            continue
        session = withdraw(session, ask.id, why, at)
    return session


def set_aside(session: Session, request: RequestId) -> Session:
    """Return *session* with *request* open, but set aside."""
    asks = tuple(msgspec.structs.replace(ask, later=True) if ask.id == request else ask for ask in session.requests)
    return msgspec.structs.replace(session, requests=asks)


def _close(session: Session, closed: ClosedRequest) -> Session:
    """Return *session* with the request closed; a request that is not open changes nothing."""
    if session.open_request(closed.id) is None:
        return session
    asks = tuple(ask for ask in session.requests if ask.id != closed.id)
    return msgspec.structs.replace(session, requests=asks, closed=(*session.closed, closed)[-KEPT_CLOSED:])
