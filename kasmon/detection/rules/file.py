"""Loads one screen rule file, strictly: each error names file, line, key and the allowed values."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.detection.regions import Finder, compile_finder
from kasmon.detection.rules.schema import MenuRule, PatternCondition, RegionRule, ScreenFile, ScreenRule, TitleRule
from kasmon.detection.rules.validation import faults
from kasmon.detection.version_range import VersionRange, range_of
from kasmon.toml_struct import fault, parse_struct, read_text

LARGEST: Final = 256 * 1024
"""The greatest size of a rule file, in bytes."""


class RulePatterns(NamedTuple):
    all: tuple[Finder, ...]
    any: tuple[Finder, ...]
    none: tuple[Finder, ...]
    text: Finder | None
    notice: Finder | None
    until: Finder | None


class Activity(NamedTuple):
    """The compiled patterns of the agent's messages and tool calls."""

    first: tuple[re.Pattern[str], ...]
    alone: tuple[re.Pattern[str], ...]
    more: tuple[re.Pattern[str], ...]
    none: tuple[re.Pattern[str], ...]


class ScreenRules:
    """A loaded rule file, ready for use."""

    def __init__(self, file: ScreenFile, name: str) -> None:
        self.file, self.name = file, name
        self.versions: VersionRange = range_of(file.versions)
        self.by_priority: tuple[ScreenRule, ...] = tuple(sorted(file.rule, key=lambda rule: -rule.priority))
        """Rules of equal priority keep the order of the file."""
        self.regions: dict[str, RegionRule] = {region.name: region for region in file.region}
        self.menus: dict[str, MenuRule] = {menu.name: menu for menu in file.menu}
        self.titles: tuple[tuple[TitleRule, re.Pattern[str]], ...] = tuple(
            (title, re.compile(title.match)) for title in file.title
        )
        activity = file.activity
        patterns = (activity.first, activity.alone, activity.more, activity.none)
        self.activity = Activity(*(tuple(map(re.compile, each)) for each in patterns))
        self.permission_modes: tuple[tuple[str, Finder], ...] = tuple(
            (mode.mode, compile_finder(mode.match, mode.area)) for mode in file.permission_mode
        )
        self.finders: dict[str, RulePatterns] = {rule.name: _compile_patterns(rule) for rule in file.rule}

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs with these screens, the file's own first."""
        return self.file.program, *self.file.also


def load(path: Path) -> ScreenRules:
    """Load the rules from the file at *path*.

    Raises:
        ConfigError: if it cannot be read, is no TOML, or does not match the schema.
    """
    return parse(read_text(path, LARGEST), str(path))


def parse(text: str, name: str = "screen") -> ScreenRules:
    """Parse the rules in *text*; *name* appears only in errors. Raises `ConfigError` as `load`."""
    file = parse_struct(text, name, ScreenFile)
    for path, why, allowed in faults(file):
        raise fault(text, name, path, why, allowed)
    return ScreenRules(file, name)


def _compile_patterns(rule: ScreenRule) -> RulePatterns:
    def some(sources: Sequence[str | PatternCondition]) -> tuple[Finder, ...]:
        return tuple(compile_finder(one, rule.area) for one in sources)

    def one(source: str | PatternCondition | None) -> Finder | None:
        return None if source is None else compile_finder(source, rule.area)

    return RulePatterns(
        some(rule.all), some(rule.any), some(rule.none), one(rule.text), one(rule.notice), one(rule.until)
    )
