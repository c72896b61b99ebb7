"""The marks of the inbox: the rows that a key selects, the requests answered together, and their texts. Pure."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.permission import Request, RequestId
from kasmon.model.request_groups import find_group
from kasmon.model.transcript.text import Token
from kasmon.tui.keymap import ROWS, KeyMap
from kasmon.tui.permissions.inbox_state import InboxRow, InboxRows
from kasmon.tui.status_bars import KeyHint
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine

NOTHING: Final = (("", Token.TEXT), ("No pending requests.", Token.STRONG), ("New requests appear here.", Token.FAINT))
NOT_YET: Final = (("", Token.TEXT), ("Loading…", Token.STRONG))
"""Shown until the secrets to hide are known."""


def head_line(rows: Sequence[InboxRow], marked: int, word: str) -> DrawnLine:
    """Return the number of pending and of marked requests, and at the right a *word* on the last key."""
    waiting, aside = sum(row.waits for row in rows), sum(row.waits and row.request.later for row in rows)
    left: list[Span] = [(" inbox ", "accent.bold"), (" ", "text")]
    left.append((f"{waiting} pending", "text.bold"))
    left += [(f"   {aside} snoozed", "soft")] if aside else []
    left += [(f"   {marked} marked", "accent.bold")] if marked else []
    return DrawnLine(tuple(left), ((f"{word} ", "warn"),) if word else ())


def bar(keys: KeyMap, look: ThemeStyles, *, has_card: bool, in_request: bool) -> tuple[KeyHint, ...]:
    """Return the keys that count now."""
    words = {"mark": "mark", "to_request": "focus list" if in_request else "focus request"}
    shown = ["leave_inbox", "help"]
    if has_card:
        shown = [*(() if in_request else ("mark",)), "to_request", *shown]
    return tuple(KeyHint(each, keys.shown(each, look.utf8), words.get(each, ROWS[each].label)) for each in shown)


Marks = frozenset[RequestId]
ALONE: Final = "No similar pending requests."
UNLIKE: Final = "Only similar requests can be answered together."


def stepped(rows: InboxRows, cursor: RequestId | None, by: int) -> RequestId | None:
    """Return the row *by* rows below *cursor*, at most the last; the first if the cursor is on none."""
    ids = [row.request.id for row in rows.shown]
    at = ids.index(cursor) + by if cursor in ids else 0
    return ids[max(0, min(at, len(ids) - 1))] if ids else None


def settled(rows: InboxRows, cursor: RequestId | None, *, on_waiting: bool) -> RequestId | None:
    """Return *cursor* if it has a row, with *on_waiting* only a pending one; else the first pending request."""
    row = rows.row(cursor)
    if row is not None and (row.waits or not on_waiting):
        return cursor
    return next((row.request.id for row in rows.shown if row.waits), None)


def still(rows: InboxRows, marks: Marks) -> Marks:
    """Return those of *marks* that are pending."""
    return frozenset(mark for mark in marks if (row := rows.row(mark)) is not None and row.waits)


def like(rows: InboxRows, cursor: RequestId | None, marks: Marks, ready: Sequence[Request]) -> Marks:
    """Return those of *ready* that may be answered together with the marked ones, or with the cursor's."""
    row = next((row for row in rows.shown if row.request.id in marks), None) or rows.row(cursor)
    return frozenset(ask.id for ask in find_group(row.request, ready)) if row is not None and row.waits else frozenset()


def toggled(rows: InboxRows, request: RequestId | None, marks: Marks, may: Marks) -> tuple[Marks, str]:
    """Add *request* to *marks* or remove it, if it is one of those that *may* be marked; else return why not."""
    row = rows.row(request)
    if row is None or not row.waits:
        return marks, ""
    if row.request.id in marks:
        return marks - {row.request.id}, ""
    if row.request.id in may or (not marks and row.crowd):
        return marks | {row.request.id}, ""
    return marks, UNLIKE if marks else ALONE
