"""What an agent says of itself by `kasmon ctx`, as a fact: cleaned, and cut to what a row can hold."""

from typing import Final

from kasmon.clean import clean_line
from kasmon.host.wire import Say
from kasmon.model.event import ContextSaid

LONGEST: Final = 200
"""Characters of a reason, or of a word on what is done."""


def said(frame: Say, at: float) -> ContextSaid:
    """The fact that *frame* tells of."""
    return ContextSaid(at=at, waiting=_cut(frame.waiting), done=_cut(frame.done))


def _cut(text: str | None) -> str | None:
    return None if text is None else clean_line(text).strip()[:LONGEST]
