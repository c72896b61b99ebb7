"""Validates a screen rule file beyond its types: names, states, areas and patterns. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kasmon.detection.regions import AREA
from kasmon.detection.rules.schema import AREAS, UNCLEAR, WORDS, PatternCondition, ScreenFile, ScreenRule
from kasmon.detection.safe_regex import PatternError, compiled
from kasmon.detection.version_range import range_of
from kasmon.toml_struct import KeyPath

PROGRAM: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")

Fault = tuple[KeyPath, str, Sequence[str]]
"""The path of an invalid value, the reason, and the allowed values."""


def faults(file: ScreenFile) -> Iterator[Fault]:
    """Yield all faults of *file*, in no particular order."""
    for key, names in (("program", (file.program,)), ("also", file.also)):
        if bad := next((name for name in names if not PROGRAM.fullmatch(name)), None):
            yield (key,), f"{bad!r} is not a program name", ()
    try:
        range_of(file.versions)
    except ValueError as error:
        yield ("versions",), str(error), ()
    for kind in ("region", "rule", "menu"):
        taken = [node.name for node in getattr(file, kind)]
        for at, name in enumerate(taken):
            if name in taken[:at]:
                yield (kind, at, "name"), f"the {kind} {name!r} is defined twice", ()
    regions = {region.name for region in file.region}
    for kind in ("rule", "title"):
        for at, node in enumerate(getattr(file, kind)):
            states = node.state.split("|")
            if node.state != UNCLEAR and (not set(states) <= set(WORDS) or len(states) != len(set(states))):
                yield (kind, at, "state"), f"{node.state!r} is not a state", (*WORDS, UNCLEAR)
    for path, area in _areas(file):
        if area not in regions and not AREA.fullmatch(area):
            yield path, f"the region {area!r} is not defined", (*AREAS, *sorted(regions))
    for at, rule in enumerate(file.rule):
        if rule.menu and rule.menu not in {menu.name for menu in file.menu}:
            yield (
                ("rule", at, "menu"),
                f"the menu {rule.menu!r} is not defined",
                sorted(menu.name for menu in file.menu),
            )
    yield from _bad_patterns(file)


def _areas(file: ScreenFile) -> Iterator[tuple[KeyPath, str]]:
    for at, rule in enumerate(file.rule):
        yield ("rule", at, "in"), rule.area
        for key, found in _founds(rule):
            if isinstance(found, PatternCondition) and found.area:
                yield ("rule", at, key), found.area
    for at, menu in enumerate(file.menu):
        yield ("menu", at, "in"), menu.area
    for at, mode in enumerate(file.permission_mode):
        yield ("permission_mode", at, "in"), mode.area


def _founds(rule: ScreenRule) -> Iterator[tuple[str, str | PatternCondition]]:
    for key in ("all", "any", "none"):
        for found in getattr(rule, key):
            yield key, found
    for key in ("text", "notice", "until"):
        if (found := getattr(rule, key)) is not None:
            yield key, found


def patterns(file: ScreenFile) -> Iterator[tuple[KeyPath, str, tuple[str, ...]]]:
    """Yield every pattern: its path, its source, and the groups that it must have."""
    for at, region in enumerate(file.region):
        for key, source in (
            ("below", region.below),
            ("from", region.start),
            ("above", region.above),
            ("cut", region.cut),
        ):
            yield ("region", at, key), source, ()
    for at, rule in enumerate(file.rule):
        for key, found in _founds(rule):
            groups = ("until",) if key == "until" else ("text",) if key in ("text", "notice") else ()
            yield ("rule", at, key), found.match if isinstance(found, PatternCondition) else found, groups
    for at, title in enumerate(file.title):
        yield ("title", at, "match"), title.match, ()
    for at, mode in enumerate(file.permission_mode):
        yield ("permission_mode", at, "match"), mode.match, () if mode.mode else ("mode",)
    for at, menu in enumerate(file.menu):
        yield ("menu", at, "question"), menu.question, ()
        yield ("menu", at, "choice"), menu.choice, ("label",)
        for key in ("more", "foot", "last", "free", "deaf", "cut", "timer", "words", "plain", "amends"):
            yield ("menu", at, key), getattr(menu, key), ()
        for key, group in (("key", "key"), ("covers", "text"), ("entry", "text"), ("toggle", "on")):
            if source := getattr(menu, key):
                yield ("menu", at, key), source, (group,)
        for source in menu.answers.values():
            yield ("menu", at, "answers"), source, ()
        for proof in menu.whole:
            for source in (*proof.all, proof.frame, proof.last):
                yield ("menu", at, "whole"), source, ()
        if (call := menu.call) is not None:
            for source, needed in ((call.begins, ()), (call.row, ("text",)), (call.named, ("text",)), (call.lines, ())):
                if source:
                    yield ("menu", at, "call"), source, needed
        if (view := menu.view) is not None:
            for source in (view.shows, view.start, view.end):
                yield ("menu", at, "view"), source, ()
            yield ("menu", at, "view"), view.row, ("text",)
    for key in ("first", "alone", "more"):
        for source in getattr(file.activity, key):
            yield ("activity", key), source, ("text",)
    for source in file.activity.none:
        yield ("activity", "none"), source, ()
    if box := file.composer:
        yield ("composer", "first"), box.first, ("draft",)
        for key in ("more", "bottom", "top", "foot", "pasted"):
            yield ("composer", key), getattr(box, key), ()


def _bad_patterns(file: ScreenFile) -> Iterator[Fault]:
    for path, source, groups in patterns(file):
        try:
            pattern = compiled(source)
        except PatternError as error:
            yield path, f"{source!r} cannot be used: {error}", ()
            continue
        for group in groups:
            if group not in pattern.groupindex:
                yield path, f"{source!r} has no group (?P<{group}>...)", ()
