"""Thoughts and prompts as rows; long texts are folded like long outputs."""

from typing import Final

from kasmon.model.transcript.style import FOLD_CHARACTERS, FOLD_LINES, INDENT, TranscriptStyle, fold_row, hidden
from kasmon.model.transcript.text import TextLine, Token, flowed
from kasmon.sanitize import clean_block

SPARE: Final = 100
"""A remainder of at most this length is drawn rather than hidden, in characters."""


def drawn(text: str, sign: str, token: Token, look: TranscriptStyle) -> list[TextLine]:
    """Return *text* behind *sign*, both as *token*; a long one truncated, with the amount that is hidden."""
    whole = clean_block(text).rstrip()
    shown = _beginning(whole) if look.fold else whole
    rows = flowed([(shown, token)], look.width, ((f"{sign} ", token),))
    rest = whole[len(shown) :].strip()
    if "\n" in rest:
        rows += hidden(rest.count("\n") + 1, "lines", look, INDENT)
    else:
        rows += hidden(len(rest), "characters", look, INDENT)
    return [*rows, *(fold_row("▴ collapse", look, INDENT) if look.opened and folds(text) else [])]


def folds(text: str) -> bool:
    """Whether folding hides a part of it."""
    whole = clean_block(text).rstrip()
    return len(_beginning(whole)) < len(whole)


def _beginning(text: str) -> str:
    """Return the beginning of a long *text*, up to the end of a word; all of it if little would be hidden."""
    lines = text.split("\n")
    short = text if len(lines) <= FOLD_LINES + 1 else "\n".join(lines[:FOLD_LINES])
    if len(short) <= FOLD_CHARACTERS + SPARE:
        return short
    end = max(short.rfind(" ", 0, FOLD_CHARACTERS), short.rfind("\n", 0, FOLD_CHARACTERS))
    return short[: end if end > 0 else FOLD_CHARACTERS]
