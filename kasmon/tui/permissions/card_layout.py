"""What stands where on a card: all that a person needs to decide, or a word that there is no room for it. Pure."""

from typing import Final

import msgspec

from kasmon.model.transcript.text import Token, fitted
from kasmon.tui.keymap import KeyMap
from kasmon.tui.permissions.card_choices import choice_lines
from kasmon.tui.permissions.card_text import BLANK, CardMode, CardState, head_lines, note_lines
from kasmon.tui.theme.look import ThemeStyles, width_of
from kasmon.tui.widgets.text_lines import DrawnLine

WIDEST: Final = 96
SHARE: Final = 96
"""A card takes at most so many percent of the window."""
BORDER: Final = 2
SIDES: Final = 4
"""Cells of a row that are border and padding."""
ROOMY_ROWS: Final = 3
"""Where the request would get fewer rows than this, blank lines make room for it."""
LEAST_ROWS: Final = 1
WRITING: Final = {CardMode.REASONING: 2, CardMode.WORDING: 2, CardMode.EDITING: 9}
"""Rows of the box to write in, with its margin."""
NO_ROOM: Final = "This window is too small. Make it larger to answer."


class CardLayout(msgspec.Struct, frozen=True):
    """The lines of a card, and the rows that are left for the request."""

    head: tuple[DrawnLine, ...]
    notes: tuple[DrawnLine, ...]
    choices: tuple[DrawnLine, ...]
    body_rows: int
    fits: bool
    """Whether the person can see it all; else no key but Esc may count."""
    is_whole: bool
    """Whether the rule and its reach stand there, and each answer of a question with its note. Else no rule may be
    made, and the answers belong into the text to read."""


def in_window(columns: int, rows: int) -> tuple[int, int]:
    """The room of a card that lies over a window of so many columns and rows: cells of a row, and rows."""
    return min(WIDEST, columns * SHARE // 100) - SIDES, rows * SHARE // 100 - BORDER


def laid_out(
    state: CardState, look: ThemeStyles, keys: KeyMap, letters: str, now: float, room: tuple[int, int]
) -> CardLayout:
    """The card of *state* in *room*: cells of a row, and rows.

    It follows from the text and where that was scrolled to, never from the rows that the text has now: a word on how
    much is below takes a row of it, and would come and go by turns.
    """
    width, rows = room[0], room[1] - WRITING.get(state.doing, 0)
    head = head_lines(state, look, now, width)

    def notes(below: int) -> list[DrawnLine]:
        return note_lines(msgspec.structs.replace(state, below=below), look, keys, letters, width)

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
                said = [line for line in notes(below) if not (tight and line == BLANK)]
                body_rows = left if below else whole
                if state.ignored and state.doing is not CardMode.OVER:
                    _tell_ignored(state.ignored, look, width, said, parts[2])
                return CardLayout(tuple(parts[0]), tuple(said), tuple(parts[2]), body_rows, True, not brief)
    why = [DrawnLine(((f" {row.text}", "warn"),)) for row in fitted([(NO_ROOM, Token.TEXT)], width - 2)]
    way_out = next((line for line in choices if line.action_at(0) == "close"), choices[-1])
    return CardLayout(tuple(head[:1]), tuple(why), (way_out,), LEAST_ROWS, False, False)


def _tell_ignored(why: str, look: ThemeStyles, width: int, notes: list[DrawnLine], choices: list[DrawnLine]) -> None:
    """Put why a key did nothing in the row above the keys, if that is blank, else in the last row: nothing moves."""
    if notes and notes[-1] == BLANK:
        notes[-1] = DrawnLine(((f" {look.cut(why, width - 1)}", "warn.bold"),))
    elif choices:
        last = choices[-1]
        room = width - width_of(last.right) - 2
        choices[-1] = DrawnLine(((f" {look.cut(why, room)}", "warn.bold"),), last.right)
