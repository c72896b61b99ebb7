"""The named regions of a screen, row ranges between landmarks, and pattern search in them. Pure."""

import re
from typing import Final, NamedTuple

from kasmon.detection.rules.schema import PatternCondition, RegionRule, TextPattern
from kasmon.detection.terminal_screen import ScreenRow, TerminalScreen

AREA: Final = re.compile(
    r"screen|top \d{1,3}|bottom \d{1,3}|block|block above composer|above composer(?: \d{1,3})?|composer|below composer"
    r"|cursor|title"
)
LONGEST_JOINED: Final = 1000
"""How many characters of joined rows a pattern is matched against."""


class PatternMatch(NamedTuple):
    row: int
    """The row index; -1 for the title."""
    match: re.Match[str]


class Finder(NamedTuple):
    """A compiled pattern with the area to search."""

    pattern: re.Pattern[str]
    area: str
    look: str = ""
    joined: bool = False


def compile_finder(source: TextPattern, area: str) -> Finder:
    """Compile *source* for *area*, unless it names its own area. Its pattern was validated when its file was loaded."""
    if isinstance(source, PatternCondition):
        return Finder(re.compile(source.match), source.area or area, source.look, source.joined)
    return Finder(re.compile(source), area)


class ScreenRegions:
    """The regions of one screen; each is computed once, on first use."""

    def __init__(self, shot: TerminalScreen, named: dict[str, RegionRule], composer: range | None) -> None:
        self.shot, self._named, self._composer = shot, named, composer
        self._cache: dict[str, range | None] = {}

    def find(self, target: Finder) -> PatternMatch | None:
        """Return the lowest match of *target*; None if there is none, or the screen has no such region."""
        if target.area == "title":
            match = target.pattern.search(self.shot.title)
            return PatternMatch(-1, match) if match else None
        rows = self.rows(target.area)
        if target.joined and rows:
            text = " ".join(self.shot.rows[at].text.strip() for at in rows)[:LONGEST_JOINED]
            match = target.pattern.search(text)
            return PatternMatch(rows.start, match) if match else None
        for at in reversed(rows or ()):
            row = self.shot.rows[at]
            match = target.pattern.search(row.pattern_text)
            if match and (not target.look or all(getattr(style, target.look) for style in row.styles(*match.span()))):
                return PatternMatch(at, match)
        return None

    def rows(self, area: str) -> range | None:
        """Return the rows of *area*; None if the screen has no such region."""
        if area not in self._cache:
            named = self._named.get(area)
            self._cache[area] = self._between(named) if named else self._built_in(area)
        return self._cache[area]

    def is_certain(self, area: str) -> bool:
        """Return whether only one row matches the beginning of *area*: a request's own text may repeat the landmark."""
        named = self._named.get(area)
        if named is None or not named.start:
            return True
        pattern = re.compile(named.start)
        return sum(pattern.search(row.pattern_text) is not None for row in self.shot.rows[: self.shot.end]) == 1

    def has_scrolled(self, area: str) -> bool:
        """Return whether the beginning of *area* has scrolled off the screen, as its `cut` pattern shows."""
        named = self._named.get(area)
        if named is None or not named.cut:
            return False
        landmark = Finder(re.compile(named.start or named.below), "screen")
        return self.find(landmark) is None and self.rows(area) is not None

    def _built_in(self, area: str) -> range | None:
        parts = area.split(" ")
        count = int(parts.pop()) if parts[-1].isdigit() else None
        match " ".join(parts):
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
        match " ".join(parts):
            case "block above composer":
                return self._block(box.start)
            case "above composer":
                return self._nearest(box.start, count)
            case "below composer":
                return range(box.stop, max(box.stop, self.shot.end))
        return box

    def _nearest(self, end: int, count: int | None) -> range:
        """Return the rows above *end* that contain *count* non-blank ones; all rows above without a *count*."""
        start, left = end, self.shot.end if count is None else count
        while start and left:
            start -= 1
            left -= bool(self.shot.rows[start].text)
        return range(start, end)

    def _block(self, end: int) -> range:
        """Return the lowest rows above *end* without a blank row between them; a ruled line counts as blank."""
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
                if pattern.search(self.shot.rows[at].pattern_text):
                    return range(start, at)
        return range(start, max(start, self.shot.end))


def _is_blank(row: ScreenRow) -> bool:
    return not row.text.strip(" \u00a0─━═▄▀▔▁╌")
