"""A search pattern: literal text, or a regular expression on request. Pure."""

import re
from typing import Final

from kasmon.errors import UsageError

GRAM: Final = 3
"""The index contains pieces of this many characters."""
MOST_GRAMS: Final = 24
_RUN: Final = re.compile(r"[ !#-\[\]-~]+")
"""Characters that a log contains literally: JSON never escapes them, however often it is nested."""


class SearchPattern:
    """Finds *text* in lines.

    Raises:
        UsageError: if it is empty, has several lines, or is no valid regular expression.
    """

    def __init__(self, text: str, *, ignores_case: bool = False, is_regex: bool = False) -> None:
        """Args:
        text: the text to find, literally.
        ignores_case: whether case is ignored.
        is_regex: *text* is a regular expression in the syntax of Python's `re`."""
        if not text:
            raise UsageError("missing search pattern.", hint="Usage: `kasmon grep PATTERN`.")
        if "\n" in text or "\r" in text:
            raise UsageError("the search pattern must be one line.", hint="Search for one of its lines.")
        self.text, self.ignores_case = text, ignores_case
        try:
            self._matches = re.compile(
                text if is_regex else re.escape(text), re.IGNORECASE if ignores_case else re.NOFLAG
            ).search
        except (re.error, OverflowError, RecursionError) as error:
            hint = "Without --regex, the pattern is matched literally."
            raise UsageError(f"{text!r} is not a valid regular expression: {error}.", hint=hint) from error
        runs = [] if is_regex else _RUN.findall(text)
        longest = max(runs, key=len, default="").encode()
        self.needle = longest.lower() if ignores_case else longest
        """Bytes in each log line with a match, in lower case if case is ignored; empty: unknown."""
        self.grams = () if is_regex else _grams(text, ignores_case)
        """Pieces of each text with a match, in any case; none if the index cannot help."""

    def find(self, line: str) -> tuple[int, int] | None:
        """Return the span of the first match in *line*, as character offsets; None if there is none."""
        found = self._matches(line)
        return None if found is None else found.span()


def _grams(text: str, ignores_case: bool) -> tuple[str, ...]:
    pieces = dict.fromkeys(text[at : at + GRAM] for at in range(len(text) - GRAM + 1))
    usable = [piece for piece in pieces if piece.isprintable() and (not ignores_case or all(map(_is_plain, piece)))]
    step = max(1, -(-len(usable) // MOST_GRAMS))
    return tuple(usable[::step])


def _is_plain(character: str) -> bool:
    return character.isascii() or character.lower() == character == character.upper()
