"""What is read on a golden screen, and what that adds up to."""

from datetime import UTC, datetime
from typing import Final

from kasmon.detection.reader import ScreenReading, read, signals
from kasmon.detection.rules.catalog import shipped
from kasmon.detection.terminal_screen import TerminalScreen, captured
from kasmon.model.evidence import StateVerdict, judge
from tests.support.detection.golden import Case

NOW: Final = datetime(2026, 11, 22, 6, 0, tzinfo=UTC).timestamp()
"""When all golden screens were seen."""


def screen_of(case: Case) -> TerminalScreen:
    facts = case.shot.facts
    cursor = facts.get("cursor")
    return captured(
        case.shot.text,
        case.shot.title,
        cursor=(cursor[0], cursor[1]) if cursor else None,
        cursor_visible=facts.get("cursor_visible", True),
        alternate=facts.get("alternate", False),
        columns=facts.get("columns", 0),
    )


def reading_of(case: Case, *, wants_all: bool = False) -> ScreenReading:
    """What the shipped rules read on *case*."""
    chosen = shipped().rules(case.agent, "" if case.version == "any" else case.version)
    assert chosen is not None, f"there are no rules for {case.agent!r}"
    return read(screen_of(case), chosen.rules, NOW, zone=UTC, wants_all=wants_all)


def verdict_of(reading: ScreenReading) -> StateVerdict:
    """The state that *reading* adds up to where nothing else is known."""
    return judge(signals(reading, NOW), NOW)
