"""How the blocks of a transcript are drawn: for which width, how much of them, and the margins they share."""

from datetime import tzinfo
from typing import Final

import msgspec

from kasmon.model.transcript.text import Margin, TextLine, Token, fitted

INDENT: Final[Margin] = (("  ", Token.TEXT),)
BELOW: Final[Margin] = (("  ⎿ ", Token.FAINT),)
UNDER: Final[Margin] = (("    ", Token.TEXT),)
FOLD_LINES: Final = 12
"""How many lines of a long text are drawn where folding is on."""
FOLD_CHARACTERS: Final = 1000
"""How much of one long line is drawn likewise."""


class TranscriptStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are drawn, whatever they say."""

    width: int
    fold: bool = True
    """Whether long outputs are cut, with the exact number of hidden lines below."""
    opened: bool = False
    """They are not, though they would be: somebody opened this block."""
    colours: bool = True
    """Whether code is coloured; where nobody sees the rows, that is time for nothing."""
    zone: tzinfo | None = None
    """Whose clock times are shown by; None: this machine's."""


def hidden(count: int, what: str, look: TranscriptStyle, margin: Margin = UNDER) -> list[TextLine]:
    """The row that says how many lines or characters are not drawn; none where all are."""
    return fold_row(f"… {count} more {what}", look, margin) if count else []


def fold_row(told: str, look: TranscriptStyle, margin: Margin = UNDER) -> list[TextLine]:
    """A row that opens or folds its block."""
    return [TextLine(row.spans, fold=True) for row in fitted([(told, Token.FAINT)], look.width, margin, margin)]
