"""The rows of the inbox: every pending request, and for a few seconds the closed ones with how they ended. Pure."""

from typing import Final

import msgspec

from kasmon.host.session.requests import CHANGED
from kasmon.model.permission import ClosedRequest, Decision, Request, RequestId, SessionId
from kasmon.model.request_groups import group_sizes
from kasmon.model.session import Session
from kasmon.sanitize import clean_line, redact
from kasmon.tui.permissions.queue import PermissionSnapshot, turn

ANSWERED: Final = {
    Decision.ALLOW: "Allowed once",
    Decision.ALWAYS: "Always allowed",
    Decision.DENY: "Denied",
    Decision.NEVER: "Always denied",
    Decision.EDIT: "Allowed with an edited input",
    Decision.CHOOSE: "Answered",
    Decision.CANCEL: "Denied and interrupted",
    Decision.LATER: "Snoozed",
}


def how_it_closed(closed: ClosedRequest | None, session: Session | None) -> str:
    """Return which client closed a request, and how; or why the agent no longer waits."""
    if session is None:
        return "The session was removed from the list."
    if closed is None:
        return "The request is no longer pending."
    if closed.decision is None:
        return f"Withdrawn: {clean_line(closed.by) or 'the agent no longer waits for it'}."
    if closed.by == "policy":
        by = f"by rule {clean_line(closed.rule)}" if closed.rule else "by a rule"
    elif closed.who:
        by = f"by {clean_line(closed.by)} at {clean_line(closed.who)}"
    else:
        by = "by you, elsewhere" if closed.by == "user" else f"by {clean_line(closed.by)}"
    return f"{ANSWERED[closed.decision]} {by}."


ANSWERED_S: Final = 6.0
"""How long a row shows how its request ended, in seconds."""
SENT: Final = "Sending your answer."


class InboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as its line shows it."""

    request: Request
    name: str
    agent: str
    says: str
    """Its tool and title, secrets hidden; empty until the secrets are known."""
    crowd: int = 0
    """The size of its group of similar requests, itself included; 0 if there is no other."""
    changed: bool = False
    """Whether it replaced a listed request, which the agent withdrew."""
    outcome: str = ""
    """How it ended, or that an answer was sent; empty while it is pending."""
    until: float = float("inf")
    """When the row is removed, on the monotonic clock."""

    @property
    def waits(self) -> bool:
        return not self.outcome


class InboxRows:
    """Keeps the shown rows, in order to show how each request ended."""

    def __init__(self) -> None:
        self._rows: dict[RequestId, InboxRow] = {}
        self.shown: tuple[InboxRow, ...] = ()

    def row(self, request: RequestId | None) -> InboxRow | None:
        return None if request is None else self._rows.get(request)

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return sum(row.waits for row in self.shown)

    @property
    def sessions(self) -> frozenset[SessionId]:
        """The sessions whose requests have a row."""
        return frozenset(row.request.session for row in self.shown)

    def take(self, asked: PermissionSnapshot, now: float) -> None:
        """Update the pending requests, at *now* on the monotonic clock."""
        waiting = {ask.id: ask for ask in asked.waiting}
        for row in [row for id_, row in self._rows.items() if id_ not in waiting]:
            self._rows[row.request.id] = _with_outcome(row, asked, now)
        counts = group_sizes([ask for ask in asked.waiting if ask.session in asked.cards])
        for ask in asked.waiting:
            before = self._rows.get(ask.id)
            changed = before.changed if before is not None else self._replaces(ask, asked)
            self._rows[ask.id] = _pending_row(ask, asked, counts.get(ask.id, 0), changed)
        self._arrange()

    def sweep(self, now: float, keep: RequestId | None) -> bool:
        """Drop the expired rows, except *keep*; return whether there were any."""
        over = [id_ for id_, row in self._rows.items() if row.until <= now and id_ != keep]
        for id_ in over:
            del self._rows[id_]
        if over:
            self._arrange()
        return bool(over)

    def _arrange(self) -> None:
        self.shown = tuple(sorted(self._rows.values(), key=lambda row: turn(row.request)))

    def _replaces(self, ask: Request, asked: PermissionSnapshot) -> bool:
        gone = [row.request for row in self._rows.values() if row.request.session == ask.session]
        session = asked.sessions.get(ask.session)
        return any(
            (closed := _closed(one.id, session)) is not None
            and closed.by == CHANGED
            and (one.kind, one.tool) == (ask.kind, ask.tool)
            for one in gone
        )


def _pending_row(ask: Request, asked: PermissionSnapshot, crowd: int, changed: bool) -> InboxRow:
    session, card = asked.sessions.get(ask.session), asked.cards.get(ask.session)
    says = "" if card is None else clean_line(redact(f"{ask.tool}  {ask.title}".strip(), card.secrets)[0])
    name = clean_line(session.name) if session is not None and session.name else ask.session
    agent = clean_line(session.agent) if session is not None else ""
    return InboxRow(request=ask, name=name, agent=agent, says=says, crowd=crowd, changed=changed)


def _with_outcome(row: InboxRow, asked: PermissionSnapshot, now: float) -> InboxRow:
    """*row* with the outcome of its request, which is no longer pending."""
    session = asked.sessions.get(row.request.session)
    closed = _closed(row.request.id, session)
    if row.until != float("inf"):
        return row
    if closed is None and row.request.id in asked.sent:
        return msgspec.structs.replace(row, outcome=SENT, crowd=0)
    return msgspec.structs.replace(row, outcome=how_it_closed(closed, session), crowd=0, until=now + ANSWERED_S)


def _closed(request: RequestId, session: Session | None) -> ClosedRequest | None:
    return next((one for one in session.closed if one.id == request), None) if session is not None else None
