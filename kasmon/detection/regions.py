"""The parts of a screen that rules name: rows from one to another, found by landmarks. Pure."""

import re
from typing import Final, NamedTuple

from kasmon.detection.rule_schema import Found, PatternCondition, RegionRule
from kasmon.detection.screenshot import ScreenRow, Screenshot

AREA: Final = re.compile(
    r"screen|top \d{1,3}|bottom \d{1,3}|block|block above composer|above composer(?: \d{1,3})?|composer|below composer"
    r"|cursor|title"
)
LONGEST_JOINED: Final = 1000
"""A pattern sees so many characters of joined rows."""


class PatternMatch(NamedTuple):
    """Where a pattern was found."""

    row: int
    """-1 in the title."""
    match: re.Match[str]


class Finder(NamedTuple):
    """A pattern that is ready to be looked for."""

    pattern: re.Pattern[str]
    area: str
    look: str = ""
    joined: bool = False


def finder(found: Found, area: str) -> Finder:
    """*found*, looked for in *area* unless it says otherwise. The pattern was checked when its file was read."""
    if isinstance(found, PatternCondition):
        return Finder(re.compile(found.match), found.area or area, found.look, found.joined)
    return Finder(re.compile(found), area)


class ScreenRegions:
    """The parts of one screen; each is looked for once, when somebody asks."""

    def __init__(self, shot: Screenshot, named: dict[str, RegionRule], composer: range | None) -> None:
        """*composer* are the rows of the place to type."""
        self.shot, self._named, self._composer = shot, named, composer
        self._known: dict[str, range | None] = {}

    def find(self, what: Finder) -> PatternMatch | None:
        """The lowest place of *what*; None if it is not there, or the screen has no such part."""
        if what.area == "title":
            match = what.pattern.search(self.shot.title)
            return PatternMatch(-1, match) if match else None
        rows = self.rows(what.area)
        if what.joined and rows:
            text = " ".join(self.shot.rows[at].text.strip() for at in rows)[:LONGEST_JOINED]
            match = what.pattern.search(text)
            return PatternMatch(rows.start, match) if match else None
        for at in reversed(rows or ()):
            row = self.shot.rows[at]
            match = what.pattern.search(row.seen)
            if match and (not what.look or looks(row, match, what.look)):
                return PatternMatch(at, match)
        return None

    def rows(self, area: str) -> range | None:
        """The rows of *area*; None where the screen has no such part."""
        if area not in self._known:
            named = self._named.get(area)
            self._known[area] = self._between(named) if named else self._built_in(area)
        return self._known[area]

    def is_certain(self, area: str) -> bool:
        """Whether nothing but the beginning of *area* looks like it: a request's own text may repeat the landmark."""
        named = self._named.get(area)
        if named is None or not named.start:
            return True
        pattern = re.compile(named.start)
        return sum(pattern.search(row.seen) is not None for row in self.shot.rows[: self.shot.end]) == 1

    def has_scrolled(self, area: str) -> bool:
        """Whether the beginning of *area* is not on the screen any more, as a mark there says."""
        named = self._named.get(area)
        if named is None or not named.cut:
            return False
        landmark = Finder(re.compile(named.start or named.below), "screen")
        return self.find(landmark) is None and self.rows(area) is not None

    def _built_in(self, area: str) -> range | None:
        words = area.split(" ")
        count = int(words.pop()) if words[-1].isdigit() else None
        match " ".join(words):
            case "screen":
                return range(self.shot.end)
            case "top":
                return range(min(count or 0, self.shot.end))
            case "bottom":
                return self._nearest(self.shot.end, count)
            case "block":
                return self._block(self.shot.end)
            case "cursor":
                at = self.shot.cursor_row if self.shot.cursor_visible and self.shot.is_cursor_at_end else None
                return None if at is None else range(at, at + 1)
        box = self._composer
        if box is None:
            return None
        match " ".join(words):
            case "block above composer":
                return self._block(box.start)
            case "above composer":
                return self._nearest(box.start, count)
            case "below composer":
                return range(box.stop, max(box.stop, self.shot.end))
        return box

    def _nearest(self, end: int, count: int | None) -> range:
        """The rows above *end*, so many of which are not blank; all of them without a *count*."""
        start, left = end, self.shot.end if count is None else count
        while start and left:
            start -= 1
            left -= bool(self.shot.rows[start].text)
        return range(start, end)

    def _block(self, end: int) -> range:
        """The lowest rows above *end* with no blank one between them; a ruled line counts as blank."""
        rows = self.shot.rows
        while end and _is_blank(rows[end - 1]):
            end -= 1
        start = end
        while start and not _is_blank(rows[start - 1]):
            start -= 1
        return range(start, end)

    def _between(self, named: RegionRule) -> range | None:
        start = 0
        if landmark := named.below or named.start:
            place = self.find(Finder(re.compile(landmark), "screen"))
            if place is not None:
                start = place.row if named.start else place.row + 1
            elif not named.cut or self.find(Finder(re.compile(named.cut), "screen")) is None:
                return None
        if named.above:
            pattern = re.compile(named.above)
            for at in range(start + 1, self.shot.end):
                if pattern.search(self.shot.rows[at].seen):
                    return range(start, at)
        return range(start, max(start, self.shot.end))


def looks(row: ScreenRow, match: re.Match[str], look: str) -> bool:
    """Whether all that was found looks like *look*."""
    return all(getattr(seen, look) for seen in row.looks(*match.span()))


def _is_blank(row: ScreenRow) -> bool:
    return not row.text.strip(" \u00a0─━═▄▀▔▁╌")
