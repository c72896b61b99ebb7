"""How the blocks of a transcript are drawn: the width, the folding, and common margins."""

from datetime import tzinfo
from typing import Final

import msgspec

from kasmon.model.transcript.text import Margin, TextLine, Token, wrap

INDENT: Final[Margin] = (("  ", Token.TEXT),)
BELOW: Final[Margin] = (("  ⎿ ", Token.FAINT),)
UNDER: Final[Margin] = (("    ", Token.TEXT),)
FOLD_LINES: Final = 12
FOLD_CHARACTERS: Final = 1000
"""How many characters of a folded line are drawn."""


class TranscriptStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are drawn, independent of their content."""

    width: int
    fold: bool = True
    """Whether long outputs are cut, with the exact number of hidden lines below."""
    opened: bool = False
    """They are not cut because the user opened this block."""
    colours: bool = True
    """Whether code is highlighted; not necessary for rows that are only measured."""
    buttons: bool = True
    """Whether code blocks have a button that copies them."""
    zone: tzinfo | None = None
    """The time zone of clock times; None: this machine's."""


def hidden(count: int, what: str, style: TranscriptStyle, margin: Margin = UNDER) -> list[TextLine]:
    """Return the row with the number of *what* is not drawn (`more lines`); none if all is."""
    return fold_row(f"… {count} {what}", style, margin) if count else []


def fold_row(text: str, style: TranscriptStyle, margin: Margin = UNDER) -> list[TextLine]:
    """Return a row that opens or folds its block."""
    return [TextLine(row.spans, fold=True) for row in wrap([(text, Token.FAINT)], style.width, margin, margin)]
