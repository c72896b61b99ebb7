"""What is searched for: words as they are, or a regular expression where somebody asks for one. Pure."""

import re
from typing import Final

from kasmon.errors import UsageError

GRAM: Final = 3
"""The index knows pieces of so many characters."""
MOST_GRAMS: Final = 24
_RUN: Final = re.compile(r"[ !#-\[\]-~]+")
"""Characters that stand in a line of a log as they are: JSON escapes them nowhere, however often it is wrapped."""


class SearchPattern:
    """Looks for *text* in lines.

    Raises:
        UsageError: if there is nothing to look for, it has several lines, or is no regular expression.
    """

    def __init__(self, text: str, *, ignores_case: bool = False, is_regex: bool = False) -> None:
        """
        Args:
            text: what to look for, as it is.
            ignores_case: whether upper and lower case are one.
            is_regex: *text* is a regular expression, as Python's `re` has them.
        """
        if not text:
            raise UsageError("missing search pattern.", hint="Usage: `kasmon grep PATTERN`.")
        if "\n" in text or "\r" in text:
            raise UsageError("the search pattern must be one line.", hint="Search for one of its lines.")
        self.text, self.ignores_case, self.is_regex = text, ignores_case, is_regex
        try:
            self._found = re.compile(
                text if is_regex else re.escape(text), re.IGNORECASE if ignores_case else re.NOFLAG
            ).search
        except (re.error, OverflowError, RecursionError) as error:
            hint = "Without --regex, the pattern is matched literally."
            raise UsageError(f"{text!r} is not a valid regular expression: {error}.", hint=hint) from error
        runs = [] if is_regex else _RUN.findall(text)
        longest = max(runs, key=len, default="").encode()
        self.needle = longest.lower() if ignores_case else longest
        """Bytes that each line of a log has that holds it, in lower case where case does not count; empty: unknown."""
        self.grams = () if is_regex else _grams(text, ignores_case)
        """Pieces that every text has that holds it, in any case; none where the index cannot help."""

    def find(self, line: str) -> tuple[int, int] | None:
        """From which to before which character of *line* it stands first; None where it does not."""
        found = self._found(line)
        return None if found is None else found.span()


def _grams(text: str, ignores_case: bool) -> tuple[str, ...]:
    pieces = dict.fromkeys(text[at : at + GRAM] for at in range(len(text) - GRAM + 1))
    usable = [piece for piece in pieces if piece.isprintable() and (not ignores_case or all(map(_is_plain, piece)))]
    step = max(1, -(-len(usable) // MOST_GRAMS))
    return tuple(usable[::step])


def _is_plain(character: str) -> bool:
    """Whether nobody can be of two minds about its case."""
    return character.isascii() or character.lower() == character == character.upper()
