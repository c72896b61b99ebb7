"""Checks of a caller's arguments: ranges of lines, terminal sizes, keys, decisions. Invalid ones are usage errors."""

import re
from typing import Final, get_args

from kasmon.errors import UsageError
from kasmon.model.permission import Decision
from kasmon.model.rule import Scope

WHOLE: Final = ("", "-")
"""The buffer's beginning as a start, its end as an end."""
NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
LARGEST: Final = 1000
"""The maximum of columns, and of rows."""


def lines(start: str | int, end: str | int) -> tuple[int, int | None]:
    """Return the range from *start* to *end* as numbers; an open start is 0, so that it means the same in both modes.

    Raises:
        UsageError: if one of them is no valid number.
    """
    first, last = _bound(str(start), "start"), _bound(str(end), "end")
    return (0 if first is None else first), last


def check_size(columns: int, rows: int) -> None:
    """Refuse an invalid terminal size.

    Raises:
        UsageError: if it is invalid.
    """
    if not (1 <= columns <= LARGEST and 1 <= rows <= LARGEST):
        raise UsageError(
            f"invalid terminal size '{columns}x{rows}'.", hint=f"Columns and rows must be from 1 to {LARGEST}."
        )


def check_text(keys: str) -> None:
    """Refuse text that is not valid Unicode; bytes escaped by `os.fsdecode` are accepted.

    Raises:
        UsageError: if it is invalid.
    """
    try:
        keys.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"cannot type {keys[error.start : error.end]!r}: it is not valid Unicode text.") from error


def decided(choice: str) -> Decision:
    """Return the decision that *choice* names.

    Raises:
        UsageError: if there is none.
    """
    try:
        return Decision(choice)
    except ValueError as error:
        raise UsageError(f"unknown answer {choice!r}.", hint=f"Answers: {', '.join(Decision)}.") from error


def check_scope(scope: str) -> None:
    """Check that *scope* is a scope of a rule.

    Raises:
        UsageError: if it is not.
    """
    if scope not in get_args(Scope):
        raise UsageError(f"unknown scope {scope!r}.", hint=f"Scopes: {', '.join(get_args(Scope))}.")


def _bound(said: str, which: str) -> int | None:
    if said in WHOLE:
        return None
    if not NUMBER.fullmatch(said):
        raise UsageError(f"a range cannot {which} at {said!r}.", hint='A range starts and ends at "", "-", n or -n.')
    return int(said)
