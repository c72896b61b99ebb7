"""What tmux says to a person who has just attached; a key ends it, and goes where it should."""

from collections.abc import Sequence
from typing import Final

from kasmon.tmux.quote import escape_format

SHOWN_MS: Final = 3000
"""How long it stands there, in milliseconds."""


def greeted(argv: Sequence[str], text: str) -> list[str]:
    """*argv*, which attaches a terminal, so that tmux then says *text*: our own words, in which nothing is a format."""
    return [*argv, ";", "display-message", "-d", str(SHOWN_MS), escape_format(text)]
