"""Finds the answerable menu on a screen, for callers that need nothing else; `reader` reads the whole screen."""

from collections.abc import Sequence

from kasmon.detection.menu_choices import ScreenMenu
from kasmon.detection.reader import read
from kasmon.detection.rule_file import ScreenRules
from kasmon.detection.terminal_screen import shown

__all__ = ["ScreenMenu", "menu"]


def menu(rows: Sequence[str], rules: ScreenRules) -> ScreenMenu | None:
    """Return the menu on *rows*, a whole screen; None if there is none, or no key answers it."""
    found = read(shown(rows), rules).menu
    return found if found is not None and found.keys else None
