"""Decides what each target gets and when: one message for each reason, a storm as one message. Pure.

A reason is open until what it is about is over. It is pushed to a target once, as soon as that target's events,
sessions, quiet hours, presence and escalation allow it. Times are seconds since the epoch.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from kasmon.config.schema import NotifyTarget
from kasmon.model.formatting import foremost, state_name
from kasmon.model.permission import Request, SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.supervisor.notifications.alerts import (
    AGAIN_S,
    FLEETING,
    STORM,
    STORM_S,
    TOGETHER,
    Alert,
    Reasons,
    alert,
    merged,
)

GATHER_S: Final = 0.1
"""How long the first push waits for others to be merged with, in seconds."""
PAUSES_S: Final = (30.0, 120.0, 600.0)
"""How long a push that failed waits until it is tried again; after the last of these it is given up."""
NEWS_S: Final = 900.0
"""How long a reason without a state that ends it (a plan, a machine, an agent that finished) can be pushed."""
OLD_S: Final = 86400.0
"""After this time any other reason is no longer pushed."""
MOST_SENT: Final = 2000
"""How many reasons are remembered for each target, so that a new process does not repeat them."""

SentRecord = dict[str, dict[str, float]]
"""Target -> what was pushed to it, and when."""


class OpenReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason that is not over."""

    keys: tuple[str, ...]
    """The ids of its requests, or its kind, session and time: the same in another process."""
    alert: Alert
    at: float
    names: tuple[str, ...] = ()
    """The names of its session that a target's filter may mean."""
    request: Request | None = None


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """One message for one target."""

    target: str
    alert: Alert
    request: Request | None
    """The request that it is about; None if it is about several, or another matter."""
    keys: tuple[str, ...]


class PushSchedule:
    """The open reasons, and what was pushed to which target."""

    def __init__(self, sent: Mapping[str, Mapping[str, float]] | None = None, zone: tzinfo | None = None) -> None:
        """*sent*: what an earlier process pushed; *zone*: the time zone of quiet hours (None: this machine's)."""
        self.reasons = Reasons()
        self.sent: SentRecord = {target: dict(keys) for target, keys in (sent or {}).items()}
        """What was pushed, or is being pushed."""
        self._zone = zone
        self._open: dict[tuple[str, ...], OpenReason] = {}
        self._fleeting_at: dict[tuple[SessionId, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._retry_at: dict[str, float] = {}
        self._sent_at: dict[str, deque[float]] = {}

    def begin(self, sessions: Iterable[Session]) -> None:
        """Take the *sessions* as they are when the process starts: only their open requests are reasons."""
        for session in sessions:
            self.reasons.find(None, session)
            requests = [ask for ask in session.requests if not ask.later]
            if requests and state_name(session) == SessionState.ASKING:
                at = min(ask.asked_at or session.since for ask in requests)
                self._add(session, "asking", tuple(ask.id for ask in requests), at)

    def update(self, before: Mapping[SessionId, Session], changed: Iterable[Session], now: float) -> bool:
        """Record the *changed* sessions, which were as in *before*; return whether there is a new reason."""
        is_new = False
        for session in changed:
            self._close(session)
            was = before.get(session.id)
            kind = self.reasons.find(was, session)
            if not kind:
                continue
            if kind in FLEETING:
                if now - self._fleeting_at.get((session.id, kind), -AGAIN_S) < AGAIN_S:
                    continue
                self._fleeting_at[session.id, kind] = now
            known = {ask.id for ask in was.requests} if was is not None else set()
            asks = tuple(ask.id for ask in session.requests if ask.id not in known) if kind == "asking" else ()
            self._add(session, kind, asks or (f"{kind}:{session.id}:{session.since:.3f}",), now)
            is_new = True
        return is_new

    def add(self, news: Alert, key: str, now: float) -> None:
        """Record a reason that is about no session."""
        self._open[key,] = OpenReason(keys=(key,), alert=news, at=now)

    def forget(self, session: SessionId) -> None:
        """Drop everything about *session*, which was removed."""
        self.reasons.forget(session)
        self._open = {keys: each for keys, each in self._open.items() if session not in each.alert.sessions}
        self._fleeting_at = {key: at for key, at in self._fleeting_at.items() if key[0] != session}

    def pop_due(self, targets: Mapping[str, NotifyTarget], *, is_away: bool, now: float) -> list[Push]:
        """Return what to push to *targets* now. Each push is returned once, unless `fail` is called for it."""
        for keys, each in list(self._open.items()):
            if now - each.at > (NEWS_S if each.alert.kind in ("plan", "machine", "finished") else OLD_S):
                del self._open[keys]
        pushes: list[Push] = []
        for name, target in targets.items():
            if not self._is_allowed(name, target, is_away=is_away, now=now):
                continue
            waiting = [each for each in self._unsent(name, target) if self._is_ready(each, target, now)]
            if not waiting:
                continue
            groups = [waiting] if len(waiting) > TOGETHER else [[each] for each in waiting]
            sent = self.sent.setdefault(name, {})
            for group in groups:
                keys = tuple(key for each in group for key in each.keys)
                sent.update(dict.fromkeys(keys, now))
                self._sent_at.setdefault(name, deque(maxlen=STORM)).append(now)
                is_one = len(group) == 1
                news = group[0].alert if is_one else merged(each.alert for each in group)
                request = group[0].request if is_one else None
                pushes.append(Push(target=name, alert=news, request=request, keys=keys))
            self.sent[name] = dict(list(sent.items())[-MOST_SENT:])
        return pushes

    def fail(self, push: Push, now: float) -> bool:
        """Have *push*, which could not be sent, returned again after a while; return whether it will be."""
        first = (push.target, push.keys[0])
        self._failures[first] = count = self._failures.get(first, 0) + 1
        if count > len(PAUSES_S):
            return False
        for key in push.keys:
            self.sent.get(push.target, {}).pop(key, None)
        self._retry_at[push.target] = now + PAUSES_S[count - 1]
        return True

    def is_waiting(self, targets: Mapping[str, NotifyTarget]) -> bool:
        """Return whether a reason is open that one of *targets* has not got, and may get later."""
        return any(True for name, target in targets.items() for _ in self._unsent(name, target))

    def _add(self, session: Session, kind: str, keys: tuple[str, ...], at: float) -> None:
        asks = {ask.id: ask for ask in session.requests if ask.id in keys}
        first = foremost(session)
        request = asks.get(first.id, next(iter(asks.values()), None)) if first is not None else None
        names = (session.name or str(session.id), session.label, str(session.id))
        news = alert(session, kind)
        self._open[keys] = OpenReason(keys=keys, alert=news, at=at, names=names, request=request)

    def _close(self, session: Session) -> None:
        """Drop the reasons about *session* that are over."""
        over = [
            keys for keys, each in self._open.items() if session.id in each.alert.sessions and _is_over(each, session)
        ]
        for keys in over:
            del self._open[keys]

    def _is_allowed(self, name: str, target: NotifyTarget, *, is_away: bool, now: float) -> bool:
        if target.when == ("desk" if is_away else "away") or now < self._retry_at.get(name, now):
            return False
        times = self._sent_at.get(name)
        is_storm = times is not None and len(times) == STORM and 0 <= now - times[0] < STORM_S
        return not is_storm and not is_quiet(target.quiet_hours, now, self._zone)

    def _unsent(self, name: str, target: NotifyTarget) -> Iterable[OpenReason]:
        sent = self.sent.get(name, {})
        for each in self._open.values():
            if each.alert.kind in target.events and _is_meant(each, target) and any(k not in sent for k in each.keys):
                yield each

    @staticmethod
    def _is_ready(reason: OpenReason, target: NotifyTarget, now: float) -> bool:
        return not 0 <= now - reason.at < max(GATHER_S, 60 * target.escalate_after_minutes)


def is_quiet(hours: str, now: float, zone: tzinfo | None = None) -> bool:
    """Return whether *now* is within the quiet *hours*, as `22:00-07:00`; the second time is no longer quiet."""
    if not hours:
        return False
    begins, _, ends = hours.partition("-")
    at = datetime.fromtimestamp(now, zone).strftime("%H:%M")
    return begins <= at < ends if begins <= ends else at >= begins or at < ends


def _is_meant(reason: OpenReason, target: NotifyTarget) -> bool:
    return not target.sessions or any(
        fnmatchcase(name, pattern) for name in reason.names for pattern in target.sessions
    )


def _is_over(reason: OpenReason, session: Session) -> bool:
    if session.is_unreachable:
        return False
    match reason.alert.kind:
        case "asking" if reason.request is not None:
            return not any(ask.id in reason.keys and not ask.later for ask in session.requests)
        case "finished":
            return session.state in _BUSY or 0 < session.finished_at <= session.viewed_at
        case "stuck":
            return not session.stuck
        case kind:
            return state_name(session) != kind


_BUSY: Final = frozenset({SessionState.WORKING, SessionState.ASKING, SessionState.STARTING})
