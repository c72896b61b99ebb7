"""The rows of the inbox: every pending request, and for a few seconds the closed ones; and their marks. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

from kasmon.host.session.request_registry import CHANGED
from kasmon.model.permission import ClosedRequest, Decision, Request, RequestId, SessionId
from kasmon.model.request_groups import find_group, group_sizes
from kasmon.model.session import Session
from kasmon.model.transcript.text import Token
from kasmon.sanitize import clean_line, redact
from kasmon.tui.keymap import ROWS, KeyMap
from kasmon.tui.permissions.queue import PermissionSnapshot, turn
from kasmon.tui.status_bars import KeyHint
from kasmon.tui.theme.look import StyledSpan, ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine

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


def describe_outcome(closed: ClosedRequest | None, session: Session | None) -> str:
    """Return which client closed a request, and how; or why the agent no longer waits."""
    if session is None:
        return "The session was removed from the list."
    if closed is None and session.is_unreachable:
        return f"{session.via} is unreachable: it is unknown whether an answer arrived. Look at the session."
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
        return sum(row.waits for row in self.shown)

    @property
    def sessions(self) -> frozenset[SessionId]:
        return frozenset(row.request.session for row in self.shown)

    def update(self, asked: PermissionSnapshot, now: float) -> None:
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

    def sweep(self, now: float, retain: RequestId | None) -> bool:
        """Drop the expired rows, except *retain*; return whether there were any."""
        over = [id_ for id_, row in self._rows.items() if row.until <= now and id_ != retain]
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
            (closed := _find_closed(one.id, session)) is not None
            and closed.by == CHANGED
            and (one.kind, one.tool) == (ask.kind, ask.tool)
            for one in gone
        )


def _pending_row(ask: Request, asked: PermissionSnapshot, crowd: int, changed: bool) -> InboxRow:
    session, card = asked.sessions.get(ask.session), asked.cards.get(ask.session)
    says = "" if card is None else clean_line(redact(f"{ask.tool}  {ask.title}".strip(), card.secrets)[0])
    name = clean_line(session.label) if session is not None else ask.session
    agent = clean_line(session.agent) if session is not None else ""
    return InboxRow(request=ask, name=name, agent=agent, says=says, crowd=crowd, changed=changed)


def _with_outcome(row: InboxRow, asked: PermissionSnapshot, now: float) -> InboxRow:
    """*row* with the outcome of its request, which is no longer pending."""
    session = asked.sessions.get(row.request.session)
    closed = _find_closed(row.request.id, session)
    if row.until != float("inf"):
        return row
    if closed is None and row.request.id in asked.sent:
        return msgspec.structs.replace(row, outcome=SENT, crowd=0)
    return msgspec.structs.replace(row, outcome=describe_outcome(closed, session), crowd=0, until=now + ANSWERED_S)


def _find_closed(request: RequestId, session: Session | None) -> ClosedRequest | None:
    return next((one for one in session.closed if one.id == request), None) if session is not None else None


NOTHING: Final = (("", Token.TEXT), ("No pending requests.", Token.STRONG), ("New requests appear here.", Token.FAINT))
NOT_YET: Final = (("", Token.TEXT), ("Loading…", Token.STRONG))
"""Shown until the secrets to hide are known."""


def head_line(rows: Sequence[InboxRow], marked: int, message: str) -> DrawnLine:
    """Return the number of pending and of marked requests, and at the right a *word* on the last key."""
    waiting, aside = sum(row.waits for row in rows), sum(row.waits and row.request.later for row in rows)
    left: list[StyledSpan] = [(" inbox ", "accent.bold"), (" ", "text")]
    left.append((f"{waiting} pending", "text.bold"))
    left += [(f"   {aside} snoozed", "soft")] if aside else []
    left += [(f"   {marked} marked", "accent.bold")] if marked else []
    return DrawnLine(tuple(left), ((f"{message} ", "warn"),) if message else ())


def bar(keys: KeyMap, look: ThemeStyles, *, has_card: bool, in_request: bool) -> tuple[KeyHint, ...]:
    labels = {"mark": "mark", "to_request": "focus list" if in_request else "focus request"}
    shown = ["leave_inbox", "help"]
    if has_card:
        shown = [*(() if in_request else ("mark",)), "to_request", *shown]
    return tuple(KeyHint(each, keys.shown(each, look.utf8), labels.get(each, ROWS[each].label)) for each in shown)


Marks = frozenset[RequestId]
ALONE: Final = "No similar pending requests."
UNLIKE: Final = "Only similar requests can be answered together."


def step_cursor(rows: InboxRows, cursor: RequestId | None, by: int) -> RequestId | None:
    """Return the row *by* rows below *cursor*, at most the last; the first if the cursor is on none."""
    ids = [row.request.id for row in rows.shown]
    at = ids.index(cursor) + by if cursor in ids else 0
    return ids[max(0, min(at, len(ids) - 1))] if ids else None


def settle_cursor(rows: InboxRows, cursor: RequestId | None, *, on_waiting: bool) -> RequestId | None:
    """Return *cursor* if it has a row, with *on_waiting* only a pending one; else the first pending request."""
    row = rows.row(cursor)
    if row is not None and (row.waits or not on_waiting):
        return cursor
    return next((row.request.id for row in rows.shown if row.waits), None)


def drop_closed(rows: InboxRows, marks: Marks) -> Marks:
    """Return those of *marks* that are pending."""
    return frozenset(mark for mark in marks if (row := rows.row(mark)) is not None and row.waits)


def find_markable(rows: InboxRows, cursor: RequestId | None, marks: Marks, ready: Sequence[Request]) -> Marks:
    """Return those of *ready* that may be answered together with the marked ones, or with the cursor's."""
    row = next((row for row in rows.shown if row.request.id in marks), None) or rows.row(cursor)
    return frozenset(ask.id for ask in find_group(row.request, ready)) if row is not None and row.waits else frozenset()


def toggle_mark(rows: InboxRows, request: RequestId | None, marks: Marks, may: Marks) -> tuple[Marks, str]:
    """Add *request* to *marks* or remove it, if it is one of those that *may* be marked; else return why not."""
    row = rows.row(request)
    if row is None or not row.waits:
        return marks, ""
    if row.request.id in marks:
        return marks - {row.request.id}, ""
    if row.request.id in may or (not marks and row.crowd):
        return marks | {row.request.id}, ""
    return marks, UNLIKE if marks else ALONE
