"""Converts a screen reading to a table, for the `expected.toml` of a golden folder and for `kasmon explain`."""

from datetime import UTC, datetime
from typing import Any

from kasmon.detection.menu_choices import MenuChoice, ScreenMenu
from kasmon.detection.reader import ScreenReading


def told(reading: ScreenReading) -> dict[str, Any]:
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
        "menu": _menu(reading.menu) if reading.menu else None,
    }
    return {key: value for key, value in values.items() if value}


def choice_line(choice: MenuChoice) -> str:
    """Return *choice* and its meaning as one line; a star marks the one that Enter would take."""
    meaning = choice.decision or ("own words" if choice.free_text else "other")
    note = f" ({choice.note})" if choice.note else ""
    chosen = " (chosen)" if choice.is_on else ""
    return f"{'* ' if choice.marked else ''}{meaning}{chosen}: {choice.label}{note}"


def _menu(menu: ScreenMenu) -> dict[str, Any]:
    return {
        "name": menu.name,
        "text": menu.text,
        **({} if menu.is_whole else {"may_be_cut": True}),
        "keys": {str(decision): key for decision, key in menu.keys.items()},
        "choices": [choice_line(choice) for choice in menu.choices],
    }
