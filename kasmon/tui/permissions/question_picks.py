"""The options of a question: where the cursor is, which are marked, and which are sent. Pure."""

from typing import NamedTuple

from kasmon.model.permission import Decision, Request


class QuestionPicks(NamedTuple):
    """The marks on a question's options; the last row, after the options, is for a custom answer."""

    cursor: int = 0
    picked: frozenset[int] = frozenset()
    own: str = ""


def row_count(request: Request) -> int:
    """Return how many rows can be marked, with that of a custom answer; 0 if there is nothing to choose."""
    takes_words = request.free_text or not request.options
    return len(request.options) + takes_words if Decision.CHOOSE in request.choices else 0


def press_key(request: Request, picks: QuestionPicks, key: str) -> tuple[QuestionPicks, bool]:
    """Return *picks* after *key*, and whether a custom answer is to be typed now."""
    rows, own_row = row_count(request), len(request.options)
    cursor = picks.cursor
    if not rows:
        return picks, False
    if key in ("up", "down"):
        return picks._replace(cursor=(cursor + (1 if key == "down" else -1)) % rows), False
    if key == "own_words":
        cursor = own_row
    elif key.isdecimal() and 0 < int(key) <= rows:
        cursor = int(key) - 1
    elif key.startswith("option-"):
        cursor = int(key.removeprefix("option-"))
    elif key != "space":
        return picks, False
    if cursor >= rows:
        return picks, False
    if cursor == own_row:
        return picks._replace(cursor=cursor), True
    return picks._replace(cursor=cursor, picked=_mark(request, picks.picked, cursor)), False


def write_answer(request: Request, picks: QuestionPicks, text: str) -> QuestionPicks:
    """Return *picks* with the custom answer *text* marked, or without one if it is empty."""
    own_row = len(request.options)
    others = picks.picked - {own_row}
    if not text:
        return picks._replace(own="", picked=others)
    return picks._replace(own=text, picked=(others if request.many else frozenset()) | {own_row})


def labels(request: Request, picks: QuestionPicks) -> tuple[str, ...]:
    """Return the options to send, in the order of the rows."""
    return tuple(request.options[row] for row in sorted(picks.picked) if row < len(request.options))


def words(request: Request, picks: QuestionPicks) -> str:
    """Return the custom answer to send; empty if none."""
    return picks.own if len(request.options) in picks.picked else ""


def _mark(request: Request, picked: frozenset[int], row: int) -> frozenset[int]:
    return picked ^ {row} if request.many else frozenset({row})
