"""The menu that stands on a screen right now, for who only looks for one; `reading` says all that a screen says."""

from collections.abc import Sequence

from kasmon.screens.catalogue import shipped
from kasmon.screens.choice import Menu
from kasmon.screens.file import Rules
from kasmon.screens.reading import read
from kasmon.screens.shot import shown

__all__ = ["Menu", "menu", "screen"]


def screen(program: str, version: str = "") -> Rules | None:
    """The shipped rules for *program*, on whatever machine; None if there are none."""
    chosen = shipped().rules(program.partition("@")[0], version)
    return None if chosen is None else chosen.rules


def menu(rows: Sequence[str], rules: Rules) -> Menu | None:
    """The menu on *rows*, a whole screen; None if there is none, or nothing of it can be answered."""
    found = read(shown(rows), rules).menu
    return found if found is not None and found.keys else None
