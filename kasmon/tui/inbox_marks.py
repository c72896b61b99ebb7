"""The inbox's cursor and marks: where a key leads, and what may be answered together with what is marked. Pure."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.alike import alike
from kasmon.model.permission import Request, RequestId
from kasmon.tui.inbox_rows import Rows

Marks = frozenset[RequestId]
ALONE: Final = "No other request is like this one."
UNLIKE: Final = "Only requests that are alike are answered together."


def stepped(rows: Rows, cursor: RequestId | None, by: int) -> RequestId | None:
    """The row so many below *cursor*, or the last on the way; the first where the cursor is on none."""
    ids = [row.request.id for row in rows.shown]
    at = ids.index(cursor) + by if cursor in ids else 0
    return ids[max(0, min(at, len(ids) - 1))] if ids else None


def settled(rows: Rows, cursor: RequestId | None, *, on_waiting: bool) -> RequestId | None:
    """*cursor* where it has a row, and with *on_waiting* one that waits; else the first that waits."""
    row = rows.row(cursor)
    if row is not None and (row.waits or not on_waiting):
        return cursor
    return next((row.request.id for row in rows.shown if row.waits), None)


def still(rows: Rows, marks: Marks) -> Marks:
    """Those of *marks* that wait."""
    return frozenset(mark for mark in marks if (row := rows.row(mark)) is not None and row.waits)


def like(rows: Rows, cursor: RequestId | None, marks: Marks, ready: Sequence[Request]) -> Marks:
    """Those of *ready* that may be answered together with what is marked, or with the one at the cursor."""
    row = next((row for row in rows.shown if row.request.id in marks), None) or rows.row(cursor)
    return frozenset(ask.id for ask in alike(row.request, ready)) if row is not None and row.waits else frozenset()


def toggled(rows: Rows, request: RequestId | None, marks: Marks, may: Marks) -> tuple[Marks, str]:
    """*marks* with *request* or without it, where it is among those that *may*; and a word where it is not."""
    row = rows.row(request)
    if row is None or not row.waits:
        return marks, ""
    if row.request.id in marks:
        return marks - {row.request.id}, ""
    if row.request.id in may or (not marks and row.crowd):
        return marks | {row.request.id}, ""
    return marks, UNLIKE if marks else ALONE
