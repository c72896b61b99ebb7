"""Loads one screen rule file, strictly: each error names file, line, key and the allowed values."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.config.parser import allowed_values, field_type, no_toml, without_none
from kasmon.detection.regions import Finder, compile_finder
from kasmon.detection.rule_schema import MenuRule, PatternCondition, RegionRule, ScreenFile, ScreenRule, TitleRule
from kasmon.detection.rule_validation import faults
from kasmon.detection.version_range import VersionRange, range_of
from kasmon.errors import ConfigError

LARGEST: Final = 256 * 1024
"""The greatest size of a rule file, in bytes."""
_AT: Final = re.compile(r"^(?P<why>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"([A-Za-z_-]+)|\[(\d+)\]")


class RulePatterns(NamedTuple):
    """The compiled patterns of one rule."""

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
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise ConfigError(str(path), "it is no file")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(str(path), f"it cannot be read ({error.strerror or error})") from error
    if len(content) > LARGEST:
        raise ConfigError(str(path), f"it is larger than {LARGEST // 1024} KB")
    try:
        return parse(content.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "it is not UTF-8") from error


def parse(text: str, name: str = "screen") -> ScreenRules:
    """Parse the rules in *text*; *name* appears only in errors.

    Raises:
        ConfigError: as `load`.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises no TOMLDecodeError
        raise no_toml(text, name, error) from error
    try:
        file = msgspec.convert(table, ScreenFile)
    except msgspec.ValidationError as error:
        raise _invalid(text, name, str(error)) from error
    for path, why, allowed in faults(file):
        raise ConfigError(name, why, line=line_of(text, path), key=dotted(path), allowed=allowed)
    return ScreenRules(file, name)


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line that sets the key at *path* (`rule`, 2, `state`), or that of the nearest table containing it."""
    wanted, number = (str(path[0]) if path else ""), (path[1] if len(path) > 1 else 0)
    key = next((str(step) for step in path[1:] if isinstance(step, str)), "")
    seen, here, best = -1, not isinstance(number, int) or len(path) == 1, None
    for at, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([\w-]+)(?:\.([\w-]+))?\s*\]", line):
            if header[1] == wanted and not header[2]:
                seen += 1
            here = header[1] == wanted and (seen == number or not isinstance(number, int))
            if here and not header[2]:
                best = at
            elif here and header[2] == key:
                return at
        elif here or (len(path) == 1 and best is None):
            setting = re.match(r"\s*([\w-]+)\s*=", line)
            if setting and setting[1] in (key, wanted if len(path) == 1 else key):
                return at
    return best


def dotted(path: Sequence[str | int]) -> str:
    """Return *path* as `rule[2].state`, counted from 0 as in the schema."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _invalid(text: str, name: str, message: str) -> ConfigError:
    """Return an error for msgspec's message *message*, with the line and the allowed values."""
    match = _AT.match(message)
    why, where = (match["why"], match["path"] or "") if match else (message, "")
    path: list[str | int] = [int(digits) if digits else key for key, digits in _STEP.findall(where)]
    kind = without_none(field_type(path, ScreenFile))
    allowed: Sequence[str] = ()
    if unknown := re.search(r"unknown field `(.+)`", why):
        path.append(unknown[1])
        why = "there is no such key"
        allowed = sorted(field.encode_name for field in msgspec.structs.fields(kind)) if kind else ()
    else:
        allowed = allowed_values(kind)
    why = f"{why[:1].lower()}{why[1:]}"
    return ConfigError(name, why, line=line_of(text, path), key=dotted(path), allowed=allowed)


def _compile_patterns(rule: ScreenRule) -> RulePatterns:
    def some(sources: Sequence[str | PatternCondition]) -> tuple[Finder, ...]:
        return tuple(compile_finder(one, rule.area) for one in sources)

    def one(source: str | PatternCondition | None) -> Finder | None:
        return None if source is None else compile_finder(source, rule.area)

    return RulePatterns(
        some(rule.all), some(rule.any), some(rule.none), one(rule.text), one(rule.notice), one(rule.until)
    )
