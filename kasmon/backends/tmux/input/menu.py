"""Whether a menu is the expected successor of another after a key: opened for text, filled in, toggled. Pure."""

import re

from kasmon.detection.menu_answer import MenuAnswer
from kasmon.detection.menu_choices import ScreenMenu


def holds(now: ScreenMenu, before: ScreenMenu, menu_answer: MenuAnswer) -> bool:
    """Whether *now* is the menu *before* with the typed text and the mark in place."""
    if now.marked != menu_answer.choice or len(now.choices) != len(before.choices):
        return False
    assert menu_answer.choice is not None
    expected = [choice.label for choice in before.choices]
    if menu_answer.stands:
        if now.choices[menu_answer.choice].words:  # still the agent's own hint, which looks like the text
            return False
        expected[menu_answer.choice] = menu_answer.stands
    else:
        written = now.choices[menu_answer.choice].note if now.entry is None else now.entry
        if written != menu_answer.words:
            return False
    return _asked(now) == _asked(before) and expected == [choice.label for choice in now.choices]


def is_open(now: ScreenMenu, before: ScreenMenu, menu_answer: MenuAnswer) -> bool:
    """Whether *now* is the menu *before*, with the marked choice open for text."""
    if now.marked != menu_answer.choice or len(now.choices) != len(before.choices) or _asked(now) != _asked(before):
        return False
    assert menu_answer.choice is not None
    known = [choice.label for choice in before.choices]
    others = [choice.label for at, choice in enumerate(now.choices) if at != menu_answer.choice]
    was, is_now = before.choices[menu_answer.choice], now.choices[menu_answer.choice]
    opened = now.entry is not None or (was.label, was.note) != (is_now.label, is_now.note)
    return opened and others == [label for at, label in enumerate(known) if at != menu_answer.choice]


def is_toggled(before: ScreenMenu, at: int, now: ScreenMenu) -> bool:
    """Whether *now* is the menu *before* with choice *at* toggled."""

    def chosen(menu: ScreenMenu) -> list[tuple[str, bool | None]]:
        return [(choice.label, choice.is_on) for choice in menu.choices]

    expected = chosen(before)
    expected[at] = (expected[at][0], not expected[at][1])
    return _asked(now) == _asked(before) and expected == chosen(now)


def _asked(menu: ScreenMenu) -> list[str]:
    """Return the lines of the question, without the choices, and without marks of what is answered."""
    return [re.sub("[☐☑☒✓✔]", "☐", line) for line in menu.text.splitlines()[: -len(menu.choices)]]
