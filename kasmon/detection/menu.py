"""The menu that stands on a screen right now, for who only looks for one; `reading` says all that a screen says."""

from collections.abc import Sequence

from kasmon.detection.menu_choices import ScreenMenu
from kasmon.detection.reader import read
from kasmon.detection.rule_file import ScreenRules
from kasmon.detection.screenshot import shown

__all__ = ["ScreenMenu", "menu"]


def menu(rows: Sequence[str], rules: ScreenRules) -> ScreenMenu | None:
    """The menu on *rows*, a whole screen; None if there is none, or nothing of it can be answered."""
    found = read(shown(rows), rules).menu
    return found if found is not None and found.keys else None
