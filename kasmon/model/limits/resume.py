"""Which sessions are resumed after a usage limit, in which order and when. Pure: the caller passes the time.

| a session that waits for a limit | what is done |
|---|---|
| its turn still runs | its agent continues by itself; no prompt is sent |
| no person allowed it, and the config does not | it waits |
| its limit ended | its prompt is sent, one after the other, a few at once |
| the limit of its account was reached again since | it waits for that one |
| it was resumed `MOST_TRIES` times and is still limited | it is given up, with the reason |
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from kasmon.model.events import BaseEvent
from kasmon.model.limits.account import account_of
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE, SessionState

CONTINUE: Final = "continue"
"""The prompt of a session whose turn had done some work when it was cut."""
GRACE_S: Final = 30.0
"""How long after the end of a limit a session is resumed, in seconds: clocks differ, and some agents continue first."""
UNKNOWN_S: Final = 1800.0
"""How long a limit without a known end counts as reached, in seconds."""
RETRY_S: Final = 300.0
"""How long after a resumption that met the limit again the next is tried, in seconds; doubled for each further one."""
MOST_TRIES: Final = 5
BEGIN_S: Final = 60.0
"""How long after its prompt a session counts as resumed without having begun to work, in seconds."""


class ResumeAllowed(BaseEvent, frozen=True, kw_only=True, tag="resume.allowed"):
    """A person allowed to resume it once its limit ends."""

    session: SessionId
    prompt: str
    """What it will be sent, as it was shown."""


class ResumeCancelled(BaseEvent, frozen=True, kw_only=True, tag="resume.cancelled"):
    """A person wants it to wait, also where the config resumes all."""

    session: SessionId


class ResumeSent(BaseEvent, frozen=True, kw_only=True, tag="resume.sent"):
    """Its prompt was sent, or was about to be: a prompt is never sent twice for one try."""

    session: SessionId
    prompt: str


class ResumeFailed(BaseEvent, frozen=True, kw_only=True, tag="resume.failed"):
    """The prompt of the last try was not accepted."""

    session: SessionId
    why: str


class ResumeEnded(BaseEvent, frozen=True, kw_only=True, tag="resume.ended"):
    """It went on, or it was given up; *why* is empty if it went on."""

    session: SessionId
    why: str = ""


ResumeFact: TypeAlias = ResumeAllowed | ResumeCancelled | ResumeSent | ResumeFailed | ResumeEnded


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided and done about one session that waits for a limit."""

    place: int = 0
    """Its place among the sessions that a person allowed, in their order."""
    is_allowed: bool = False
    is_cancelled: bool = False
    prompt: str = ""
    """What it will be sent; empty if no person has seen it yet."""
    tries: int = 0
    """How often it was sent since it was last allowed, or began to wait."""
    sent_at: float = 0.0
    failed: str = ""
    """Why its last prompt was not accepted."""
    ended_at: float = 0.0
    gave_up: str = ""
    """Why it was given up; empty if it was not."""


class ResumePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the config says."""

    mode: Literal["ask", "auto", "never"] = "ask"
    spacing_s: float = 10.0
    at_once: int = 3


class ResumeSteps(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a fleet at one moment."""

    send: Session | None = None
    """The session that is resumed now."""
    ended: Mapping[SessionId, str] = {}
    """The sessions that went on, or are given up with this reason."""
    next_at: float | None = None
    """When the next one may be resumed without any event, in seconds since the epoch; None if none is."""


def apply_resume(resumptions: Mapping[SessionId, Resumption], fact: ResumeFact) -> dict[SessionId, Resumption]:
    """Return *resumptions* after *fact*."""
    before, put = resumptions.get(fact.session, Resumption()), msgspec.structs.replace
    match fact:
        case ResumeAllowed(prompt=prompt):
            place = max((each.place for each in resumptions.values()), default=0) + 1
            now = Resumption(place=place, is_allowed=True, prompt=prompt)
        case ResumeCancelled():
            now = Resumption(is_cancelled=True)
        case ResumeSent(prompt=prompt, at=at):
            now = put(before, tries=before.tries + 1, prompt=prompt, sent_at=at, failed="", gave_up="")
        case ResumeFailed(why=why):
            now = put(before, failed=why)
        case ResumeEnded(why=why, at=at):
            now = Resumption(ended_at=at, gave_up=why)
    return {**resumptions, fact.session: now}


def waits_for_limit(session: Session) -> bool:
    """Whether *session* can be resumed by a prompt: it is limited, and its agent does not continue by itself."""
    return session.state is SessionState.LIMITED and session.exists and not session.in_turn and not session.via


def limit_ends_at(session: Session) -> float:
    """Return when the limit that *session* met ends, in seconds since the epoch.

    An end that is not known is taken to be `UNKNOWN_S` after the limit was met.
    """
    return session.limited_until if session.limited_until is not None else session.since + UNKNOWN_S


def due_at(session: Session, resumption: Resumption) -> float:
    """Return when *session*, which waits for a limit, may be resumed, in seconds since the epoch."""
    until = limit_ends_at(session)
    if resumption.tries:
        until = max(until, resumption.sent_at + RETRY_S * 2.0 ** (resumption.tries - 1))
    return until + GRACE_S


def next_resumptions(
    sessions: Iterable[Session],
    resumptions: Mapping[SessionId, Resumption],
    policy: ResumePolicy,
    now: float,
    since_last_s: float,
) -> ResumeSteps:
    """Return what to do *now* with the sessions that wait for a limit.

    Args:
        resumptions: what was decided and done about them.
        policy: what the config says.
        now: the time of day, which may jump.
        since_last_s: how long ago a session was last resumed, by a clock that does not jump, in seconds.
    """
    everyone = {session.id: session for session in sessions}
    ended = {id_: why for id_, each in resumptions.items() if (why := _end(everyone.get(id_), each, now)) is not None}
    waiting = [
        session
        for session in everyone.values()
        if waits_for_limit(session)
        and session.id not in ended
        and is_wanted(resumptions.get(session.id, Resumption()), session, policy)
    ]
    due = {
        each.id: max(due_at(each, resumptions.get(each.id, Resumption())), _met_again_until(each, waiting, resumptions))
        for each in waiting
    }
    begun = (id_ for id_, each in resumptions.items() if each.tries and id_ not in ended)
    at_work = sum(_is_resumed(everyone.get(id_), resumptions[id_], now) for id_ in begun)
    ready = sorted((each for each in waiting if due[each.id] <= now), key=lambda s: _rank(s, resumptions))
    later = [at for at in due.values() if at > now]
    if not ready or at_work >= policy.at_once or since_last_s < policy.spacing_s:
        if ready and at_work < policy.at_once:
            later.append(now + policy.spacing_s - since_last_s)
        return ResumeSteps(ended=ended, next_at=min(later, default=None))
    return ResumeSteps(send=ready[0], ended=ended, next_at=min(later, default=None))


def is_wanted(resumption: Resumption, session: Session, policy: ResumePolicy) -> bool:
    """Whether *session* is resumed when its limit ends: a person allowed it, or the config resumes all."""
    if policy.mode == "never" or resumption.is_cancelled:
        return False
    if resumption.gave_up and resumption.ended_at >= session.since:
        return False
    return resumption.is_allowed or resumption.tries > 0 or policy.mode == "auto"


def _end(session: Session | None, resumption: Resumption, now: float) -> str | None:
    """Return why *resumption* is over; empty if its session went on, None if it is not over."""
    is_open = resumption.is_allowed or resumption.tries > 0 or resumption.is_cancelled
    if not is_open:
        return None
    if session is None or session.state not in ALIVE:
        return "the session ended" if resumption.tries or resumption.is_allowed else ""
    if waits_for_limit(session):
        if resumption.tries < MOST_TRIES or now < resumption.sent_at + BEGIN_S:
            return None
        reason = resumption.failed or "the limit was reached again each time"
        return f"it was resumed {resumption.tries} times: {reason}"
    if session.state is SessionState.LIMITED or _is_resumed(session, resumption, now):
        return None
    return ""


def _is_resumed(session: Session | None, resumption: Resumption, now: float) -> bool:
    """Whether *session* was sent its prompt and works on it, or has not begun to."""
    if session is None or not resumption.tries or session.state not in ALIVE:
        return False
    if session.state in (SessionState.WORKING, SessionState.ASKING) or session.in_turn:
        return True
    return resumption.sent_at <= now < resumption.sent_at + BEGIN_S and not resumption.failed


def _met_again_until(
    session: Session, waiting: Iterable[Session], resumptions: Mapping[SessionId, Resumption]
) -> float:
    """Return until when the limit of *session* lasts by others of its account and model that met it again; else 0."""
    until = 0.0
    for other in waiting:
        tried = resumptions.get(other.id, Resumption())
        if tried.tries and (account_of(other), other.model) == (account_of(session), session.model):
            known = tried.sent_at + RETRY_S if other.limited_until is None else other.limited_until
            until = max(until, known + GRACE_S)
    return until


def _rank(session: Session, resumptions: Mapping[SessionId, Resumption]) -> tuple[object, ...]:
    """Return the place of *session*: in the order that a person allowed them, then a person's own, then plans'."""
    place = resumptions.get(session.id, Resumption()).place
    of_plan = (session.plan is not None, session.plan or "", session.wave or 0, session.task or 0)
    return (not place, place, *of_plan, session.since, session.id)
