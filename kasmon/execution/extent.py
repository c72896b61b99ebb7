"""Ranges of lines and sizes of terminals, as a caller says them; what makes no sense is a usage error."""

import re
from typing import Final

from kasmon.errors import UsageError

WHOLE: Final = ("", "-")
"""The beginning of the buffer as a start, its end as an end."""
NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
LARGEST: Final = 1000
"""Columns, or rows."""


def lines(start: str, end: str) -> tuple[int, int | None]:
    """The lines from *start* to *end*; their beginning is said, so that an open one is the whole buffer in both modes.

    Raises:
        UsageError: if one of them is no such number.
    """
    first, last = _bound(start, "start"), _bound(end, "end")
    return (0 if first is None else first), last


def check_size(columns: int, rows: int) -> None:
    """Refuse what is no terminal's size.

    Raises:
        UsageError: if it is not.
    """
    if not (1 <= columns <= LARGEST and 1 <= rows <= LARGEST):
        raise UsageError(f"'{columns}x{rows}' is no terminal's size.", hint=f"Columns and rows go from 1 to {LARGEST}.")


def _bound(said: str, which: str) -> int | None:
    if said in WHOLE:
        return None
    if not NUMBER.fullmatch(said):
        raise UsageError(f"{said!r} is no {which} of a range.", hint='A range\'s ends are "", "-", n or -n.')
    return int(said)
