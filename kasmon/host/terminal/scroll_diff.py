"""Finds the lines that left a terminal's screen since the last reading. Pure.

tmux reports the end of its history, never what is new in it: a changed width rewraps it, a full history loses its
beginning, a program may clear it and print all of it again. So the lines that were seen last are searched in it.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from kasmon.sanitize import hidden_mark

SEEN: Final = 6
"""The number of lines by which the last reading is identified."""
RECALLED: Final = 1000
"""How many lines of an alternate screen are remembered, so that none is recorded twice within them."""
KEY_LINES: Final = 100
"""The body of a private key has fewer lines."""

HEADERS: Final = 4
"""The most lines between its beginning and its body."""

_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_ENDS: Final = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_SHORT: Final = re.compile(r"[A-Za-z0-9+/=]{1,80}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
_VARIES: Final = re.compile(r"[\W\d_]+")


def behind(lines: Sequence[str], seen: Sequence[str], expected: int | None) -> int | None:
    """Return the index in *lines* behind *seen*, the lines seen last; None if *seen* is not among them.

    Args:
        lines: the oldest first.
        seen: at most a few.
        expected: the approximate index, if known: of several matches the nearest is taken, else the last.
    """
    size, last = len(seen), seen[-1] if seen else ""
    places = [
        at + 1
        for at in range(size - 1, len(lines))
        if lines[at] == last and [*lines[at + 1 - size : at + 1]] == [*seen]
    ]
    if not places or not size:
        return None
    return places[-1] if expected is None else min(places, key=lambda place: (abs(place - expected), -place))


def keyless(lines: Sequence[str]) -> list[str]:
    """Return *lines* without the bodies of private keys, also if a key's beginning or end is not among them."""
    kept = list(lines)
    if not any("-----" in line for line in lines):
        return kept
    for at, line in enumerate(lines):
        if _BEGINS.search(line):
            _cover(kept, range(at + 1, min(at + KEY_LINES, len(kept))), headers=HEADERS)
        elif _ENDS.search(line):
            last = at - 1
            if last > 0 and _SHORT.fullmatch(kept[last]) and _LONG.search(kept[last - 1]):
                kept[last] = hidden_mark(len(kept[last]))
                last -= 1
            _cover(kept, range(last, max(last - KEY_LINES, -1), -1))
    return kept


def _cover(lines: list[str], places: Iterable[int], headers: int = 0) -> None:
    """Cover a key's body that begins at the first of *places*, or behind at most *headers* lines."""
    is_body, is_downward = False, headers > 0
    for at in places:
        covered = _LONG.sub(lambda body: hidden_mark(len(body[0])), lines[at])
        if covered == lines[at]:
            if is_body and is_downward and _SHORT.fullmatch(lines[at]):
                lines[at] = hidden_mark(len(lines[at]))
            if is_body or not headers:
                return
            headers -= 1
        is_body = is_body or covered != lines[at]
        lines[at] = covered


class ScrolledOffLines:
    """Lines that disappeared from an alternate screen, where nothing scrolls off.

    A line of which only a counter or spinner changes is the same line; one that comes and goes is returned once.
    """

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._returned: OrderedDict[str, None] = OrderedDict()

    def since(self, shown: Iterable[str]) -> list[str]:
        """Return the lines that are gone now that *shown* is the screen, from its top."""
        before, self._shown = self._shown, tuple(shown)
        there = {_normalise(line) for line in self._shown}
        gone: list[str] = []
        for line in before:
            key = _normalise(line)
            if key and key not in there and key not in self._returned:
                self._returned[key] = None
                gone.append(line)
        while len(self._returned) > RECALLED:
            self._returned.popitem(last=False)
        return gone


def _normalise(line: str) -> str:
    return _VARIES.sub(" ", line).strip()
