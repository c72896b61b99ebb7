"""How the blocks of a transcript are drawn: for which width, how much of them, and the margins they share."""

from datetime import tzinfo
from typing import Final

import msgspec

from kasmon.model.text import Margin, Token

INDENT: Final[Margin] = (("  ", Token.TEXT),)
BELOW: Final[Margin] = (("  ⎿ ", Token.FAINT),)
UNDER: Final[Margin] = (("    ", Token.TEXT),)


class Look(msgspec.Struct, frozen=True, kw_only=True):
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
