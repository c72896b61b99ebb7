"""The lines above and below the inbox's list, and what stands there while nothing waits. Pure."""

from collections.abc import Sequence
from typing import Final

from kasmon.model.text import Token
from kasmon.tui.bars import Offer
from kasmon.tui.inbox_rows import Row
from kasmon.tui.keys import ROWS, Keys
from kasmon.tui.lines import DrawnLine
from kasmon.tui.look import Look, Span

NOTHING: Final = (
    ("", Token.TEXT),
    ("Nothing waits for you.", Token.STRONG),
    ("What agents ask stands here as soon as they do.", Token.FAINT),
)
NOT_YET: Final = (("", Token.TEXT), ("One moment.", Token.STRONG))
"""While it is not known what must not be shown."""


def head_line(rows: Sequence[Row], marked: int, word: str) -> DrawnLine:
    """How many wait, how many are marked, and at the right a *word* on the last key."""
    waiting, aside = sum(row.waits for row in rows), sum(row.waits and row.request.later for row in rows)
    left: list[Span] = [(" requests ", "accent.bold"), (" ", "text")]
    left.append(("1 waits" if waiting == 1 else f"{waiting} wait", "text.bold"))
    left += [(f"   {aside} set aside", "soft")] if aside else []
    left += [(f"   {marked} marked", "accent.bold")] if marked else []
    return DrawnLine(tuple(left), ((f"{word} ", "warn"),) if word else ())


def bar(keys: Keys, look: Look, *, has_card: bool, in_request: bool) -> tuple[Offer, ...]:
    """The keys that matter now."""
    words = {"mark": "mark", "to_request": "the list's keys" if in_request else "the request's keys"}
    shown = ["leave_inbox", "help"]
    if has_card:
        shown = [*(() if in_request else ("mark",)), "to_request", *shown]
    return tuple(Offer(each, keys.shown(each, look.utf8), words.get(each, ROWS[each].label)) for each in shown)
