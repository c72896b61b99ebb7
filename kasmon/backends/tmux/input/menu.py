"""Whether a menu is what the one before it becomes by a key: opened for words, written into, toggled. Pure."""

import re

from kasmon.detection.menu_answer import MenuAnswer
from kasmon.detection.menu_choices import ScreenMenu


def holds(now: ScreenMenu, before: ScreenMenu, way: MenuAnswer) -> bool:
    """Whether *now* is the menu *before* with the words where they belong, and the mark there."""
    if now.marked != way.choice or len(now.choices) != len(before.choices):
        return False
    assert way.choice is not None
    expected = [choice.label for choice in before.choices]
    if way.stands:
        if now.choices[way.choice].words:  # what stands there is still the agent's own hint, which reads like them
            return False
        expected[way.choice] = way.stands
    else:
        written = now.choices[way.choice].note if now.entry is None else now.entry
        if written != way.words:
            return False
    return _asked(now) == _asked(before) and expected == [choice.label for choice in now.choices]


def is_open(now: ScreenMenu, before: ScreenMenu, way: MenuAnswer) -> bool:
    """Whether *now* is the menu *before*, in which words can be written into the choice with the mark."""
    if now.marked != way.choice or len(now.choices) != len(before.choices) or _asked(now) != _asked(before):
        return False
    assert way.choice is not None
    known = [choice.label for choice in before.choices]
    others = [choice.label for at, choice in enumerate(now.choices) if at != way.choice]
    was, is_now = before.choices[way.choice], now.choices[way.choice]
    opened = now.entry is not None or (was.label, was.note) != (is_now.label, is_now.note)
    return opened and others == [label for at, label in enumerate(known) if at != way.choice]


def is_toggled(before: ScreenMenu, at: int, now: ScreenMenu) -> bool:
    """Whether *now* is the menu *before* with choice *at* chosen, or no more."""

    def chosen(menu: ScreenMenu) -> list[tuple[str, bool | None]]:
        return [(choice.label, choice.is_on) for choice in menu.choices]

    expected = chosen(before)
    expected[at] = (expected[at][0], not expected[at][1])
    return _asked(now) == _asked(before) and expected == chosen(now)


def _asked(menu: ScreenMenu) -> list[str]:
    """What is asked, without the choices, and without marks that say whether something is answered."""
    return [re.sub("[☐☑☒✓✔]", "☐", line) for line in menu.text.splitlines()[: -len(menu.choices)]]
