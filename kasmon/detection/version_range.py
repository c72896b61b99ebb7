"""Versions of agents, and the version ranges of screen rule files: `>=2.1.295, <3`."""

import re
from itertools import zip_longest
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}")
_BOUND: Final = re.compile(r"(>=|<=|==|>|<)\s*(\d{1,9}(?:\.\d{1,9}){0,7})")

Version = tuple[int, ...]


class VersionBound(NamedTuple):
    sign: str
    version: Version

    def holds(self, version: Version) -> bool:
        """Return whether *version* is within this bound; a missing part counts as 0."""
        mine, its = zip(*zip_longest(self.version, version, fillvalue=0), strict=True)
        return {"<": its < mine, "<=": its <= mine, "==": its == mine, ">=": its >= mine, ">": its > mine}[self.sign]


class VersionRange(NamedTuple):
    """The versions within all *bounds*; without bounds, every version."""

    bounds: tuple[VersionBound, ...] = ()

    def holds(self, version: Version) -> bool:
        """Return whether *version* is within all bounds."""
        return all(bound.holds(version) for bound in self.bounds)

    @property
    def start(self) -> Version:
        """The oldest version; empty if there is no lower bound."""
        return max((bound.version for bound in self.bounds if bound.sign in (">=", ">", "==")), default=())


def version_of(text: str) -> Version | None:
    """Return the version in *text* (`codex-cli 0.169.0`); None if there is none."""
    match = _NUMBER.search(text)
    return tuple(int(number) for number in match[0].split(".")) if match else None


def range_of(text: str) -> VersionRange:
    """Parse the range in *text*. Raises `ValueError` if *text* is no range."""
    bounds: list[VersionBound] = []
    for part in text.split(",") if text.strip() else ():
        match = _BOUND.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not a version bound such as >=2.1.295")
        bounds.append(VersionBound(match[1], tuple(int(number) for number in match[2].split("."))))
    return VersionRange(tuple(bounds))
