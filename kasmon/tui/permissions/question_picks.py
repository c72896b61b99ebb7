"""The answers of a question: where the cursor is, which are marked, and what is sent of them. Pure."""

from typing import NamedTuple

from kasmon.model.permission import Decision, Request


class QuestionPicks(NamedTuple):
    """The marks on a question's answers; the last row, after the options, is for the person's own words."""

    cursor: int = 0
    picked: frozenset[int] = frozenset()
    own: str = ""


def takes_words(request: Request) -> bool:
    """Whether a person may answer in their own words."""
    return Decision.CHOOSE in request.choices and (request.free_text or not request.options)


def row_count(request: Request) -> int:
    """How many answers can be marked; 0 if it is no question to choose at."""
    return len(request.options) + takes_words(request) if Decision.CHOOSE in request.choices else 0


def pressed(request: Request, picks: QuestionPicks, key: str) -> tuple[QuestionPicks, bool]:
    """*picks* after *key*, and whether the row for own words is to be written in now."""
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
    return picks._replace(cursor=cursor, picked=_marked(request, picks.picked, cursor)), False


def worded(request: Request, picks: QuestionPicks, words: str) -> QuestionPicks:
    """*picks* with the person's own *words* marked, or without where there are none."""
    own_row = len(request.options)
    others = picks.picked - {own_row}
    if not words:
        return picks._replace(own="", picked=others)
    return picks._replace(own=words, picked=(others if request.many else frozenset()) | {own_row})


def labels(request: Request, picks: QuestionPicks) -> tuple[str, ...]:
    """The options that are sent, in the order of the rows."""
    return tuple(request.options[row] for row in sorted(picks.picked) if row < len(request.options))


def words(request: Request, picks: QuestionPicks) -> str:
    """The person's own words that are sent; empty if none."""
    return picks.own if len(request.options) in picks.picked else ""


def _marked(request: Request, picked: frozenset[int], row: int) -> frozenset[int]:
    return picked ^ {row} if request.many else frozenset({row})
