"""What an agent says of itself by `kasmon ctx`, as a fact: cleaned, and cut to what a row can hold. Pure."""

from typing import Final

from kasmon.clean import clean_line
from kasmon.model.event import ContextSaid

LONGEST: Final = 200
"""Characters of a reason, or of a word on what is done."""


def declared(waiting: str | None, done: str | None, at: float) -> ContextSaid:
    """The fact that it waits for something, or is done; None leaves the one as it was."""
    return ContextSaid(at=at, waiting=_cut(waiting), done=_cut(done))


def _cut(text: str | None) -> str | None:
    return None if text is None else clean_line(text).strip()[:LONGEST]
