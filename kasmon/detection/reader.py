"""What a terminal agent's screen says: the rules of its file against one look at its terminal. Pure.

A screen says one of `rules.WORDS`, or several with `|` between where it cannot tell, or `unclear`. Nothing on it is
ever a pattern, a format or a path: patterns come from the file alone, and what is passed on is text that was cleaned.
"""

from datetime import tzinfo
from typing import Final

import msgspec

from kasmon.detection.limit_reset import reset_at
from kasmon.detection.menu_choices import ScreenMenu, menu_in
from kasmon.detection.prompt_box import Composer, composer
from kasmon.detection.regions import Finder, PatternMatch, ScreenRegions
from kasmon.detection.rule_file import ScreenRules
from kasmon.detection.rule_schema import UNCLEAR, ScreenRule
from kasmon.detection.screenshot import Screenshot
from kasmon.model.evidence import Signal
from kasmon.model.permission import RequestKind

LONGEST: Final = 2000
"""The most characters of a text that is passed on; a menu's is whole."""


class OutrankedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that also holds, and did not decide."""

    rule: str
    state: str
    priority: int


class TitleReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the window's title says."""

    state: str
    rule: str
    asking: RequestKind | None = None


class ScreenReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one screen says."""

    state: str = UNCLEAR
    rule: str = ""
    """The rule that decided; empty where none holds."""
    asking: RequestKind | None = None
    failed: bool = False
    """The turn before this ended in an error."""
    text: str = ""
    """What is asked, or what went wrong."""
    notice: str = ""
    """What to say beside the state, e.g. that it tries again."""
    until: float | None = None
    """When a limit ends, in seconds since the epoch; counted from `now` (see `lasting`)."""
    menu: ScreenMenu | None = None
    composer: Composer | None = None
    """Where a person types; None where there is no such place, or nobody knows it."""
    title: TitleReading | None = None
    permission_mode: str = ""
    """How much the agent asks, as the screen says it; empty where it does not."""
    lower: tuple[OutrankedRule, ...] = ()
    """The rules that hold too, the most important first; only where all were asked for."""
    file: str = ""
    """The file whose rules these are."""


def read(
    shot: Screenshot, rules: ScreenRules, now: float = 0.0, *, zone: tzinfo | None = None, wants_all: bool = False
) -> ScreenReading:
    """What *shot* says by *rules*.

    Args:
        now: when the screen was seen, in seconds since the epoch; times of a limit are counted from there.
        zone: of times on the screen that name none; None is this machine's.
        wants_all: also look which other rules hold, for `explain`.
    """
    box = composer(shot, rules.file.composer)
    regions = ScreenRegions(shot, rules.regions, box.rows if box else None)
    title = _title(shot, rules)
    decided: ScreenReading | None = None
    lower: list[OutrankedRule] = []
    menus: dict[str, ScreenMenu | None] = {}
    for rule in rules.by_priority:
        if not _holds(rule, rules, regions, box):
            continue
        menu = None
        if rule.menu:
            if rule.menu not in menus:
                menus[rule.menu] = menu_in(shot, regions, rules.menus[rule.menu])
            if (menu := menus[rule.menu]) is None:
                continue
        if decided is None:
            decided = _said(rule, rules, regions, menu, now, zone)
            if not wants_all:
                break
        else:
            lower.append(OutrankedRule(rule=rule.name, state=rule.state, priority=rule.priority))
    return msgspec.structs.replace(
        decided or ScreenReading(),
        composer=box,
        title=title,
        permission_mode=_permission_mode(rules, regions),
        lower=tuple(lower),
        file=rules.name,
    )


def lasting(before: ScreenReading | None, reading: ScreenReading, now: float) -> ScreenReading:
    """*reading*, of which the screen said the same *before*: a limit ends when it was first said to end.

    "resets 3pm" means another day when it is read again at four; and an agent that nobody spoke to since goes on
    showing it when the limit is long over. So from then on it counts as idle where it can be spoken to.
    """
    if "limited" not in reading.state or before is None:
        return reading
    if (before.rule, before.text) == (reading.rule, reading.text) and before.until is not None:
        reading = msgspec.structs.replace(reading, until=before.until)
    if reading.until is not None and reading.until <= now:
        state = "idle" if reading.composer is not None else "asking"
        asking = None if state == "idle" else RequestKind.QUESTION
        return msgspec.structs.replace(reading, state=state, asking=asking, notice="the limit is over")
    return reading


def signals(reading: ScreenReading, at: float) -> tuple[Signal, ...]:
    """*reading* as evidence, seen first *at*: the screen's word, and the title's where it has one."""
    screen = Signal(
        source="screen",
        value=reading.state,
        at=at,
        asking=reading.asking,
        text=reading.text or reading.notice,
        until=reading.until,
        rule=reading.rule,
    )
    title = reading.title
    if title is None:
        return (screen,)
    return screen, Signal(source="title", value=title.state, at=at, asking=title.asking, rule=title.rule)


def _title(shot: Screenshot, rules: ScreenRules) -> TitleReading | None:
    for rule, pattern in rules.titles:
        if pattern.search(shot.title):
            return TitleReading(state=rule.state, rule=rule.match, asking=rule.asking)
    return None


def _permission_mode(rules: ScreenRules, regions: ScreenRegions) -> str:
    for mode, what in rules.permission_modes:
        if (place := regions.find(what)) is not None:
            return mode or (place.match["mode"] or "").strip().lower()[:40]
    return ""


def _holds(rule: ScreenRule, rules: ScreenRules, regions: ScreenRegions, box: Composer | None) -> bool:
    """Whether all conditions of *rule* but its menu hold."""
    match rule.composer:
        case "there" if box is None:
            return False
        case "gone" if box is not None:
            return False
        case "empty" if box is None or box.draft:
            return False
        case "draft" if box is None or not box.draft:
            return False
    wanted = rules.finders[rule.name]
    if not all(regions.find(what) for what in wanted.all):
        return False
    if wanted.any and not any(regions.find(what) for what in wanted.any):
        return False
    return not any(regions.find(what) for what in wanted.none)


def _said(
    rule: ScreenRule,
    rules: ScreenRules,
    regions: ScreenRegions,
    menu: ScreenMenu | None,
    now: float,
    zone: tzinfo | None,
) -> ScreenReading:
    wanted = rules.finders[rule.name]
    text = _group(regions, wanted.text, "text")
    until = _group(regions, wanted.until, "until")
    return ScreenReading(
        state=rule.state,
        rule=rule.name,
        asking=rule.asking or (menu.kind if menu and "asking" in rule.state else None),
        failed=rule.failed,
        text=(text or (menu.text if menu else ""))[:LONGEST],
        notice=_group(regions, wanted.notice, "text")[:LONGEST],
        until=reset_at(until, now, zone) if until else None,
        menu=menu,
    )


def _group(regions: ScreenRegions, what: Finder | None, group: str) -> str:
    """The text of *group* where *what* is found; empty where it is not."""
    place: PatternMatch | None = regions.find(what) if what else None
    if place is None or what is None:
        return ""
    return (place.match.groupdict().get(group) or "").strip()
