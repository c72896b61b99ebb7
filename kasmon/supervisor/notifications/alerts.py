"""Finds the reasons for alerts to an absent user, and words them. Pure.

`Alerts` is for the dashboard that is open: once per reason and session, merged in a storm, not for what is on screen.
`push_schedule` is for services.

The reasons: a session has a new request, is lost, crashed, stuck, unsure after work, limited, or ended a long piece of
work. The end of every turn is no reason. Nor is a state that a session was in when the dashboard opened.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.model.formatting import ending, foremost, lost_why, session_label, state_label, state_name
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.sanitize import clean_line, redact

if TYPE_CHECKING:
    from kasmon.supervisor.plans.boards import PlanBoard

GATHER_S: Final = 1.0
"""How long the first alert waits for others to be merged with, in seconds."""
STORM_S: Final = 20.0
STORM: Final = 3
"""After this many alerts within `STORM_S` the next ones wait until that time is over, and are merged."""
TOGETHER: Final = 2
"""More alerts than this at one moment are merged."""
AGAIN_S: Final = 600.0
"""A fleeting reason causes an alert at most once in this time, in seconds, until the user has looked."""
NAMES: Final = 3
FLEETING: Final = frozenset({"unsure", "stuck", "limited"})
"""Reasons that come and go."""
BUSY: Final = frozenset({SessionState.WORKING, SessionState.ASKING})


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert: what the desktop shows and the command gets. Clean, without secrets of known shape."""

    kind: str
    """`asking lost crashed stuck unsure limited finished`, `several`, `plan`, `machine`.

    A plan has a question or ended; a machine is unreachable.
    """
    title: str
    text: str
    sessions: tuple[SessionId, ...]


class Reasons:
    """Finds the reasons for alerts in changes of sessions."""

    def __init__(self) -> None:
        self.finished_after_s = 60.0
        """An agent that worked this long is a reason when it finishes; 0 turns that off."""
        self._working_since: dict[SessionId, float] = {}
        self._cut_off: dict[SessionId, Session] = {}
        """The sessions whose machine is unreachable, as they were before."""

    def find(self, was: Session | None, session: Session) -> str:
        """Return the kind of the reason that *session* now is, which *was* in another state; empty without one."""
        was = self._before_cut_off(was, session)
        kind = "" if was is None else self._find_reason(was, session)
        self._track_work(was, session)
        return kind

    def forget(self, session: SessionId) -> None:
        """Drop everything about *session*, which was removed."""
        self._cut_off.pop(session, None)
        self._working_since.pop(session, None)

    def _before_cut_off(self, was: Session | None, session: Session) -> Session | None:
        """Return what *session* is compared with: after its machine was unreachable, what it was before that."""
        if was is not None and session.is_unreachable and not was.is_unreachable:
            self._cut_off[session.id] = was
        elif was is not None and was.is_unreachable and not session.is_unreachable:
            return self._cut_off.pop(session.id, was)
        return was

    def _find_reason(self, was: Session, session: Session) -> str:
        if session.is_unreachable:
            return ""  # its machine causes one
        before, state = (session.state.value if not session.crashed else "crashed" for session in (was, session))
        is_new = {ask.id for ask in session.requests} - {ask.id for ask in was.requests}
        if session.has_host_request and is_new:
            return "asking"
        if state == "asking":
            return "asking" if is_new or before not in ("asking", "unsure") else ""
        if state in ("lost", "crashed"):
            return state if before != state else ""
        if state == "unsure":
            return "unsure" if was.state in BUSY else ""
        if state == "limited":
            return "limited" if before != state else ""
        if session.stuck and not was.stuck:
            return "stuck"
        worked_s = session.since - self._working_since.get(session.id, was.since)
        is_over = was.state in BUSY and state in ("idle", "ended") and not session.stopped
        return "finished" if is_over and 0 < self.finished_after_s <= worked_s else ""

    def _track_work(self, was: Session | None, session: Session) -> None:
        """Record since when it works: a request during the work does not end it."""
        if session.state not in BUSY and session.state is not SessionState.UNSURE:
            self._working_since.pop(session.id, None)
        elif was is not None and was.state is SessionState.WORKING:
            self._working_since.setdefault(session.id, was.since)
        elif session.state is SessionState.WORKING:
            self._working_since.setdefault(session.id, session.since)


class Alerts:
    """The pending and the sent alerts. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.reasons = Reasons()
        self._pending: dict[SessionId, Alert] = {}
        self._since = 0.0
        self._alerted_at: dict[tuple[SessionId, str], float] = {}
        self._sent_at: deque[float] = deque(maxlen=STORM)

    def update(
        self, before: Mapping[SessionId, Session], changed: Iterable[Session], seen: SessionId | None, now: float
    ) -> bool:
        """Record the *changed* sessions; return whether there is a new reason for an alert.

        Args:
            seen: the session that the user looks at now.
        """
        is_new = False
        for session in changed:
            kind = self.reasons.find(before.get(session.id), session)
            if not kind:
                pending = self._pending.get(session.id)
                if pending is not None and pending.kind not in ("finished", state_name(session)):
                    del self._pending[session.id]  # it was over before the alert was sent
            elif session.id != seen and not self._is_repeated(session.id, kind, now):
                self._since = self._since if self._pending else now
                self._pending[session.id] = alert(session, kind)
                self._alerted_at[session.id, kind] = now
                is_new = True
        return is_new

    def acknowledge(self, session: SessionId) -> None:
        """The user looks at *session*: drop its pending alerts, and let fleeting reasons cause alerts again."""
        self._pending.pop(session, None)
        for kind in FLEETING:
            self._alerted_at.pop((session, kind), None)

    def forget(self, session: SessionId) -> None:
        """Drop everything about *session*, which was removed."""
        self.acknowledge(session)
        self.reasons.forget(session)
        self._alerted_at = {key: at for key, at in self._alerted_at.items() if key[0] != session}

    def due(self, now: float) -> list[Alert]:
        """Return the alerts to send now; each is returned once."""
        is_storm = len(self._sent_at) == STORM and now - self._sent_at[0] < STORM_S
        if not self._pending or is_storm or now - self._since < GATHER_S:
            return []
        alerts = list(self._pending.values())
        self._pending.clear()
        calls = alerts if len(alerts) <= TOGETHER else [merged(alerts)]
        self._sent_at.extend([now] * len(calls))
        return calls

    def _is_repeated(self, session: SessionId, kind: str, now: float) -> bool:
        alerted_at = self._alerted_at.get((session, kind))
        return kind in FLEETING and alerted_at is not None and now - alerted_at < AGAIN_S


def alert(session: Session, kind: str) -> Alert:
    """Return the alert about *session* for the reason *kind*."""
    name = session_label(session, session.id)
    titles = {
        "asking": f"{name} has a request",
        "lost": f"Lost contact with {name}",
        "crashed": f"{name} {state_label(session)}",
        "stuck": f"{name} may be stuck",
        "unsure": f"{name}: status unknown",
        "limited": f"{name} reached a usage limit",
        "finished": f"{name} has finished",
    }
    match kind:
        case "asking":
            ask = foremost(session)
            what = f"{ask.tool} {ask.title}".strip() if ask else session.last_line
        case "crashed":
            what = session.end_why if session.has_failed_to_start else ending(session)
        case "lost":
            what = lost_why(session)
        case "stuck":
            what = session.stuck_why
        case "unsure":
            what = session.unsure_why or ""
        case _:
            what = session.last_line
    return Alert(kind=kind, title=titles[kind], text=_redact(what), sessions=(session.id,))


def merged(alerts: Iterable[Alert]) -> Alert:
    alerts = tuple(alerts)
    finished = sum(each.kind == "finished" for each in alerts)
    need = len(alerts) - finished
    parts = [f"{need} {'session needs' if need == 1 else 'sessions need'} attention" if need else ""]
    parts += [f"{finished} {'has' if finished == 1 else 'have'} finished" if finished else ""]
    more = len(alerts) - NAMES
    lines = [each.title for each in alerts[:NAMES]] + ([f"and {more} more"] if more > 0 else [])
    return Alert(
        kind="several",
        title=", ".join(part for part in parts if part),
        text="; ".join(lines),
        sessions=tuple(session for each in alerts for session in each.sessions),
    )


def machine_alert(name: str, why: str) -> Alert:
    """Return the alert about the machine *name*, which is unreachable."""
    return Alert(kind="machine", title=f"{name} is unreachable", text=clean_line(why)[:200], sessions=())


def plan_alert(was: "PlanBoard | None", board: "PlanBoard") -> Alert | None:
    """Return the alert about the plan *board*, which *was* otherwise, if it newly needs a decision or has ended."""
    asks, is_over = board.ahead.question, board.run.state == "ended"
    is_new = bool(asks) and not (was is not None and was.ahead.question)
    if is_over:
        is_new = was is not None and was.run.state != "ended" and not was.run.is_aborted
    if not is_new:
        return None
    text = f"The plan has ended: {board.run.outcome}." if is_over else f"Needs a decision: {asks}"
    title = f"Plan {redact(clean_line(board.plan.name))[0]}"
    return Alert(kind="plan", title=title, text=clean_line(redact(text)[0]), sessions=())


def _redact(text: str) -> str:
    """An agent's *text* for use outside the screen: one line, 200 characters, no token of a known shape."""
    return clean_line(redact(text, ())[0])[:200]
