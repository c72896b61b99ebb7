"""Reads one screen of a terminal agent by the rules of its file. Pure.

The state is one of `rules.schema.WORDS`, several joined with `|` if ambiguous, or `unclear`. Screen text is never used
as a pattern, a format or a path: patterns come from the file alone, and text is sanitized before it is passed on.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Final

import msgspec

from kasmon.detection.limit_reset import parse_reset_time
from kasmon.detection.menus.choices import MenuChoice, ScreenMenu, find_menu
from kasmon.detection.prompt_box import Composer, composer
from kasmon.detection.regions import Finder, ScreenRegions
from kasmon.detection.rules.file import ScreenRules
from kasmon.detection.rules.schema import UNCLEAR, ScreenRule
from kasmon.detection.terminal_screen import TerminalScreen, shown
from kasmon.model.agent_program import SHELLS
from kasmon.model.evidence import Signal
from kasmon.model.permission import RequestKind

LONGEST: Final = 2000
"""The most characters of a text that is passed on; a menu's text is complete."""

LONGEST_ACTIVITY: Final = 200
COLUMN_GAP: Final = "    "
"""Text behind this many blanks belongs to another column of the screen, such as a sidebar."""


class OutrankedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that also matched, with a lower priority than the deciding one."""

    rule: str
    state: str
    priority: int


class TitleReading(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    rule: str
    asking: RequestKind | None = None


class ScreenReading(msgspec.Struct, frozen=True, kw_only=True):
    state: str = UNCLEAR
    rule: str = ""
    """The name of the deciding rule; empty if none matched."""
    asking: RequestKind | None = None
    failed: bool = False
    """Whether the previous turn ended in an error."""
    text: str = ""
    """The question, or the error message."""
    notice: str = ""
    """A remark on the state, e.g. that the agent retries."""
    until: float | None = None
    """When a limit ends, in seconds since the epoch; computed relative to `now` (see `lasting`)."""
    menu: ScreenMenu | None = None
    composer: Composer | None = None
    """The composer; None if there is none, or the rules do not describe it."""
    title: TitleReading | None = None
    permission_mode: str = ""
    """The agent's permission mode as shown on the screen; empty if not shown."""
    lower: tuple[OutrankedRule, ...] = ()
    """The other matching rules, by descending priority; only with `wants_all`."""
    file: str = ""


def read(
    shot: TerminalScreen, rules: ScreenRules, now: float = 0.0, *, zone: tzinfo | None = None, wants_all: bool = False
) -> ScreenReading:
    """Read *shot* by *rules*.

    Args:
        now: when the screen was captured, in seconds since the epoch; limit times are computed relative to it.
        zone: the time zone of times that name none; None is this machine's.
        wants_all: also collect the other matching rules, for `explain`.
    """
    box = composer(shot, rules.file.composer)
    regions = ScreenRegions(shot, rules.regions, box.rows if box else None)
    title = read_title(shot.title, rules)
    decided: ScreenReading | None = None
    lower: list[OutrankedRule] = []
    menus: dict[str, ScreenMenu | None] = {}
    for rule in rules.by_priority:
        if not _matches(rule, rules, regions, box):
            continue
        menu = None
        if rule.menu:
            if rule.menu not in menus:
                menus[rule.menu] = find_menu(shot, regions, rules.menus[rule.menu])
            if (menu := menus[rule.menu]) is None:
                continue
        if decided is None:
            decided = _build_reading(rule, rules, regions, menu, now, zone)
            if not wants_all:
                break
        else:
            lower.append(OutrankedRule(rule=rule.name, state=rule.state, priority=rule.priority))
    return msgspec.structs.replace(
        decided or ScreenReading(),
        composer=box,
        title=title,
        permission_mode=_read_permission_mode(rules, regions),
        lower=tuple(lower),
        file=rules.name,
    )


def menu(rows: Sequence[str], rules: ScreenRules) -> ScreenMenu | None:
    """Return the menu on *rows*, a whole screen; None if there is none, or no key answers it."""
    found = read(shown(rows), rules).menu
    return found if found is not None and found.keys else None


def lasting(before: ScreenReading | None, reading: ScreenReading, now: float) -> ScreenReading:
    """Return *reading* with the limit time of *before*, if that showed the same limit; an expired limit is removed.

    "resets 3pm" means another day when it is read again at four. An agent without new input continues to show a limit
    that is long over. From then on the state is idle if there is a composer, and asking otherwise.
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
    """Return *reading* as evidence, first seen at *at*: a signal of the screen, and one of the title if it matched."""
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


@lru_cache(maxsize=1024)
def read_title(title: str, rules: ScreenRules) -> TitleReading | None:
    """Return the state that *title*, sanitized, shows by *rules*; None if no rule matches."""
    for rule, pattern in rules.titles:
        if pattern.search(title):
            return TitleReading(state=rule.state, rule=rule.match, asking=rule.asking)
    return None


def _read_permission_mode(rules: ScreenRules, regions: ScreenRegions) -> str:
    for mode, finder in rules.permission_modes:
        if (place := regions.find(finder)) is not None:
            return mode or (place.match["mode"] or "").strip().lower()[:40]
    return ""


def _matches(rule: ScreenRule, rules: ScreenRules, regions: ScreenRegions, box: Composer | None) -> bool:
    """Return whether all conditions of *rule* except its menu hold."""
    match rule.composer:
        case "there" if box is None:
            return False
        case "gone" if box is not None:
            return False
        case "empty" if box is None or box.draft:
            return False
        case "draft" if box is None or not box.draft:
            return False
    finders = rules.finders[rule.name]
    if not all(regions.find(finder) for finder in finders.all):
        return False
    if finders.any and not any(regions.find(finder) for finder in finders.any):
        return False
    return not any(regions.find(finder) for finder in finders.none)


def _build_reading(
    rule: ScreenRule,
    rules: ScreenRules,
    regions: ScreenRegions,
    menu: ScreenMenu | None,
    now: float,
    zone: tzinfo | None,
) -> ScreenReading:
    finders = rules.finders[rule.name]
    text = _find_group(regions, finders.text, "text")
    until = _find_group(regions, finders.until, "until")
    return ScreenReading(
        state=rule.state,
        rule=rule.name,
        asking=rule.asking or (menu.kind if menu and "asking" in rule.state else None),
        failed=rule.failed,
        text=(text or (menu.text if menu else ""))[:LONGEST],
        notice=_find_group(regions, finders.notice, "text")[:LONGEST],
        until=parse_reset_time(until, now, zone) if until else None,
        menu=menu,
    )


def _find_group(regions: ScreenRegions, finder: Finder | None, group: str) -> str:
    place = regions.find(finder) if finder else None
    return (place.match.groupdict().get(group) or "").strip() if place else ""


def has_messages(rules: ScreenRules) -> bool:
    """Return whether a program with *rules* is an agent, which has messages; of a shell the last row counts."""
    return SHELLS.isdisjoint(rules.programs)


def find_last_activity(shot: TerminalScreen, box: Composer | None, rules: ScreenRules) -> str:
    """Return the last paragraph of the agent's last message, or its last tool call; empty if *shot* shows neither.

    *box* is the composer on *shot*. Without one a dialog covers the messages, and the result is empty.
    """
    found: list[str] = []
    is_open, is_below_blank = False, True
    for row in shot.rows[: box.first_row] if box is not None else ():
        text = row.pattern_text
        if not text.strip():
            is_below_blank = True
            continue
        is_chrome = any(pattern.search(text) for pattern in rules.activity.none)
        first = [*rules.activity.first, *(rules.activity.alone if is_below_blank else ())]
        first, more = ([], ()) if is_chrome else (first, rules.activity.more)
        begins = next((match for pattern in first if (match := pattern.search(text))), None)
        goes_on = next((match for pattern in more if is_open and (match := pattern.search(text))), None)
        if begins is not None:
            found = [begins["text"]]
        elif goes_on is not None:
            found = [goes_on["text"]] if is_below_blank else [*found, goes_on["text"]]
        is_open, is_below_blank = begins is not None or goes_on is not None, False
    return " ".join(part.strip().partition(COLUMN_GAP)[0] for part in found)[:LONGEST_ACTIVITY]


def build_reading_table(reading: ScreenReading) -> dict[str, Any]:
    """Return *reading* without its state as TOML-compatible values; empty ones are left out."""
    box, title = reading.composer, reading.title
    until = None if reading.until is None else datetime.fromtimestamp(reading.until, UTC).strftime("%Y-%m-%d %H:%M")
    values = {
        "rule": reading.rule,
        "title_says": title.state if title else "",
        "text": "" if reading.menu else reading.text,
        "notice": reading.notice,
        "until": until,
        "composer": None if box is None else "draft" if box.draft else "empty",
        "draft": box.draft if box else "",
        "ghost": box.ghost if box else "",
        "menu": _build_menu_table(reading.menu) if reading.menu else None,
    }
    return {key: value for key, value in values.items() if value}


def format_choice(choice: MenuChoice) -> str:
    """Return *choice* and its meaning as one line; a star marks the one that Enter would take."""
    meaning = choice.decision or ("own words" if choice.free_text else "other")
    note = f" ({choice.note})" if choice.note else ""
    chosen = " (chosen)" if choice.is_on else ""
    return f"{'* ' if choice.marked else ''}{meaning}{chosen}: {choice.label}{note}"


def _build_menu_table(menu: ScreenMenu) -> dict[str, Any]:
    return {
        "name": menu.name,
        "text": menu.text,
        **({} if menu.is_whole else {"may_be_cut": True}),
        "keys": {str(decision): key for decision, key in menu.keys.items()},
        "choices": [format_choice(choice) for choice in menu.choices],
    }
