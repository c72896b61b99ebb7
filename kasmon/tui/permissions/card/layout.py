"""The layout of a card: everything needed to decide, or a note that the window is too small. Pure."""

from typing import Final

import msgspec

from kasmon.model.transcript.text import Token, wrap
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.card.choices import choice_lines
from kasmon.tui.permissions.card.text import BLANK, CardMode, CardState, head_lines, note_lines
from kasmon.tui.theme.look import ThemeStyles, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

WIDEST: Final = 96
SHARE: Final = 96
"""Most percent of the window that a card takes."""
BORDER: Final = 2
SIDES: Final = 4
"""Cells of a row that are border and padding."""
ROOMY_ROWS: Final = 3
"""Where the request would get fewer rows than this, blank lines are dropped for it."""
LEAST_ROWS: Final = 1
WRITING: Final = {CardMode.REASONING: 2, CardMode.WORDING: 2, CardMode.EDITING: 9}
"""Rows of the text box, with its margin."""
NO_ROOM: Final = "This window is too small. Make it larger to answer."


class CardLayout(msgspec.Struct, frozen=True):
    """The lines of a card, and the rows left for the request."""

    head: tuple[DrawnLine, ...]
    notes: tuple[DrawnLine, ...]
    choices: tuple[DrawnLine, ...]
    body_rows: int
    fits: bool
    """Whether all of it is visible; if not, only Esc may work."""
    is_whole: bool
    """Whether the rule with its scope, or each option of a question with its note, is shown in full. If not, no rule
    may be created, and the options belong into the text to read."""


def measure_window(columns: int, rows: int) -> tuple[int, int]:
    """Return the space of a card over a window of that size: cells of a row, and rows."""
    return min(WIDEST, columns * SHARE // 100) - SIDES, rows * SHARE // 100 - BORDER


def lay_out(state: CardState, look: ThemeStyles, keys: KeyMap, now: float, size: tuple[int, int]) -> CardLayout:
    """Lay out the card of *state* in *size*: cells of a row, and rows.

    It depends on the text and its scroll position, not on the text's current rows. Otherwise the note about lines
    below, which takes one of those rows, would appear and vanish by turns.
    """
    width, rows = size[0], size[1] - WRITING.get(state.doing, 0)
    head = head_lines(state, look, now, width)

    def notes(below: int) -> list[DrawnLine]:
        return note_lines(msgspec.structs.replace(state, below=below), look, keys, width)

    for brief in (False, True):
        choices = choice_lines(state, look, keys, width, brief)
        for tight in (False, True):
            parts = [head, notes(0), choices, notes(1)]
            if tight:
                parts = [[line for line in part if line != BLANK] for part in parts]
            whole, left = (rows - len(parts[0]) - len(parts[2]) - len(parts[told]) for told in (1, 3))
            least = LEAST_ROWS if tight else ROOMY_ROWS
            if left >= least or whole >= max(least, state.rows):
                below = 0 if state.ahead <= whole else state.ahead - left
                foot_lines = [line for line in notes(below) if not (tight and line == BLANK)]
                body_rows = left if below else whole
                if state.ignored and state.doing is not CardMode.OVER:
                    _put_ignored(state.ignored, look, width, foot_lines, parts[2])
                return CardLayout(tuple(parts[0]), tuple(foot_lines), tuple(parts[2]), body_rows, True, not brief)
    why = [DrawnLine(((f" {row.text}", "warn"),)) for row in wrap([(NO_ROOM, Token.TEXT)], width - 2)]
    way_out = next((line for line in choices if line.action_at(0) == "close"), choices[-1])
    return CardLayout(tuple(head[:1]), tuple(why), (way_out,), LEAST_ROWS, False, False)


def _put_ignored(why: str, look: ThemeStyles, width: int, notes: list[DrawnLine], choices: list[DrawnLine]) -> None:
    """Put why a key did nothing into the row above the keys if it is blank, else into the last row: nothing moves."""
    if notes and notes[-1] == BLANK:
        notes[-1] = DrawnLine(((f" {look.cut(why, width - 1)}", "warn.bold"),))
    elif choices:
        last = choices[-1]
        space = width - width_of(last.right) - 2
        choices[-1] = DrawnLine(((f" {look.cut(why, space)}", "warn.bold"),), last.right)
