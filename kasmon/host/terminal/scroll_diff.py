"""Which lines left a terminal's screen since somebody looked last. Pure.

tmux tells how its history ends, never what is new in it: a width that changes wraps it anew, a full history loses its
beginning, a program may clear it and print all of it again. So the last lines that were seen are looked for.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from kasmon.sanitize import hidden_mark

SEEN: Final = 6
"""By so many lines it is known how far somebody saw."""
RECALLED: Final = 1000
"""So many lines of an alternate screen are remembered, so that none is written down twice within them."""
KEY_LINES: Final = 100
"""The body of a private key has fewer lines."""

HEADERS: Final = 4
"""So many lines may stand between its beginning and its body."""

_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_ENDS: Final = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_SHORT: Final = re.compile(r"[A-Za-z0-9+/=]{1,80}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
_VARIES: Final = re.compile(r"[\W\d_]+")


def behind(lines: Sequence[str], seen: Sequence[str], expected: int | None) -> int | None:
    """The place in *lines* behind *seen*, the last lines that somebody saw; None where those do not stand there.

    Args:
        lines: the oldest first.
        seen: at most a few.
        expected: about where, if that is known: of several places it is the nearest, else the last.
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
    """*lines* without the bodies of private keys, also where a key's beginning or end is not among them."""
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
    """Cover a key's body that begins at the first of *places*, or behind so many *headers* at most."""
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
    """What stood on an alternate screen, where nothing scrolls away, and does not any more.

    A line that only counts on, or turns its wheel, is the same line; one that comes and goes is told once.
    """

    def __init__(self) -> None:
        self._shown: tuple[str, ...] = ()
        self._told: OrderedDict[str, None] = OrderedDict()

    def since(self, shown: Iterable[str]) -> list[str]:
        """The lines that are gone now that *shown* is the screen, from its top."""
        before, self._shown = self._shown, tuple(shown)
        there = {_known_by(line) for line in self._shown}
        gone: list[str] = []
        for line in before:
            known_by = _known_by(line)
            if known_by and known_by not in there and known_by not in self._told:
                self._told[known_by] = None
                gone.append(line)
        while len(self._told) > RECALLED:
            self._told.popitem(last=False)
        return gone


def _known_by(line: str) -> str:
    return _VARIES.sub(" ", line).strip()
