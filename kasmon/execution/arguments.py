"""What a caller says: ranges of lines, sizes of terminals, keys, decisions. What makes no sense is a usage error."""

import re
from typing import Final

from kasmon.errors import UsageError
from kasmon.model.permission import Decision

WHOLE: Final = ("", "-")
"""The beginning of the buffer as a start, its end as an end."""
NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
LARGEST: Final = 1000
"""Columns, or rows."""


def lines(start: str | int, end: str | int) -> tuple[int, int | None]:
    """The lines from *start* to *end*; their beginning is said, so that an open one is the whole buffer in both modes.

    Raises:
        UsageError: if one of them is no such number.
    """
    first, last = _bound(str(start), "start"), _bound(str(end), "end")
    return (0 if first is None else first), last


def check_size(columns: int, rows: int) -> None:
    """Refuse what is no terminal's size.

    Raises:
        UsageError: if it is not.
    """
    if not (1 <= columns <= LARGEST and 1 <= rows <= LARGEST):
        raise UsageError(
            f"invalid terminal size '{columns}x{rows}'.", hint=f"Columns and rows must be from 1 to {LARGEST}."
        )


def check_text(keys: str) -> None:
    """Refuse what no terminal and no prompt could hold; a byte that is no UTF-8 may stand there as `os.fsdecode` does.

    Raises:
        UsageError: if it is none.
    """
    try:
        keys.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"cannot type {keys[error.start : error.end]!r}: it is not valid Unicode text.") from error


def decided(choice: str) -> Decision:
    """The decision that *choice* names.

    Raises:
        UsageError: if it names none.
    """
    try:
        return Decision(choice)
    except ValueError as error:
        raise UsageError(f"unknown answer {choice!r}.", hint=f"Answers: {', '.join(Decision)}.") from error


def _bound(said: str, which: str) -> int | None:
    if said in WHOLE:
        return None
    if not NUMBER.fullmatch(said):
        raise UsageError(f"a range cannot {which} at {said!r}.", hint='A range starts and ends at "", "-", n or -n.')
    return int(said)
