"""The marks of the inbox: the rows that a key selects, the requests answered together, and their texts. Pure."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.permission import Request, RequestId
from kasmon.model.request_groups import alike
from kasmon.model.transcript.text import Token
from kasmon.tui.keymap import ROWS, KeyMap
from kasmon.tui.permissions.inbox_state import InboxRow, InboxRows
from kasmon.tui.status_bars import KeyHint
from kasmon.tui.theme.look import Span, ThemeStyles
from kasmon.tui.widgets.text_lines import DrawnLine

NOTHING: Final = (
    ("", Token.TEXT),
    ("No pending requests.", Token.STRONG),
    ("New requests appear here.", Token.FAINT),
)
NOT_YET: Final = (("", Token.TEXT), ("Loading…", Token.STRONG))
"""While it is not known what must not be shown."""


def head_line(rows: Sequence[InboxRow], marked: int, word: str) -> DrawnLine:
    """How many wait, how many are marked, and at the right a *word* on the last key."""
    waiting, aside = sum(row.waits for row in rows), sum(row.waits and row.request.later for row in rows)
    left: list[Span] = [(" inbox ", "accent.bold"), (" ", "text")]
    left.append((f"{waiting} pending", "text.bold"))
    left += [(f"   {aside} snoozed", "soft")] if aside else []
    left += [(f"   {marked} marked", "accent.bold")] if marked else []
    return DrawnLine(tuple(left), ((f"{word} ", "warn"),) if word else ())


def bar(keys: KeyMap, look: ThemeStyles, *, has_card: bool, in_request: bool) -> tuple[KeyHint, ...]:
    """The keys that matter now."""
    words = {"mark": "mark", "to_request": "focus list" if in_request else "focus request"}
    shown = ["leave_inbox", "help"]
    if has_card:
        shown = [*(() if in_request else ("mark",)), "to_request", *shown]
    return tuple(KeyHint(each, keys.shown(each, look.utf8), words.get(each, ROWS[each].label)) for each in shown)


Marks = frozenset[RequestId]
ALONE: Final = "No similar pending requests."
UNLIKE: Final = "Only similar requests can be answered together."


def stepped(rows: InboxRows, cursor: RequestId | None, by: int) -> RequestId | None:
    """The row so many below *cursor*, or the last on the way; the first where the cursor is on none."""
    ids = [row.request.id for row in rows.shown]
    at = ids.index(cursor) + by if cursor in ids else 0
    return ids[max(0, min(at, len(ids) - 1))] if ids else None


def settled(rows: InboxRows, cursor: RequestId | None, *, on_waiting: bool) -> RequestId | None:
    """*cursor* where it has a row, and with *on_waiting* one that waits; else the first that waits."""
    row = rows.row(cursor)
    if row is not None and (row.waits or not on_waiting):
        return cursor
    return next((row.request.id for row in rows.shown if row.waits), None)


def still(rows: InboxRows, marks: Marks) -> Marks:
    """Those of *marks* that wait."""
    return frozenset(mark for mark in marks if (row := rows.row(mark)) is not None and row.waits)


def like(rows: InboxRows, cursor: RequestId | None, marks: Marks, ready: Sequence[Request]) -> Marks:
    """Those of *ready* that may be answered together with what is marked, or with the one at the cursor."""
    row = next((row for row in rows.shown if row.request.id in marks), None) or rows.row(cursor)
    return frozenset(ask.id for ask in alike(row.request, ready)) if row is not None and row.waits else frozenset()


def toggled(rows: InboxRows, request: RequestId | None, marks: Marks, may: Marks) -> tuple[Marks, str]:
    """*marks* with *request* or without it, where it is among those that *may*; and a word where it is not."""
    row = rows.row(request)
    if row is None or not row.waits:
        return marks, ""
    if row.request.id in marks:
        return marks - {row.request.id}, ""
    if row.request.id in may or (not marks and row.crowd):
        return marks | {row.request.id}, ""
    return marks, UNLIKE if marks else ALONE
