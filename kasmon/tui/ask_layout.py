"""What stands where on a card: all that a person needs to decide, or a word that there is no room for it. Pure."""

from typing import Final

import msgspec

from kasmon.model.text import Token, fitted
from kasmon.tui.ask_choices import choice_lines
from kasmon.tui.ask_words import BLANK, CardState, Doing, head_lines, note_lines
from kasmon.tui.keys import Keys
from kasmon.tui.lines import DrawnLine
from kasmon.tui.look import Look

WIDEST: Final = 96
SHARE: Final = 96
"""A card takes at most so many percent of the window."""
BORDER: Final = 2
SIDES: Final = 4
"""Cells of a row that are border and padding."""
ROOMY_ROWS: Final = 3
"""Where the request would get fewer rows than this, blank lines make room for it."""
LEAST_ROWS: Final = 1
WRITING: Final = {Doing.REASONING: 2, Doing.WORDING: 2, Doing.EDITING: 9}
"""Rows of the box to write in, with its margin."""
NO_ROOM: Final = (
    "This window is too small to show what is asked and what can be answered. Make it larger; nothing is answered here."
)


class Laid(msgspec.Struct, frozen=True):
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


def laid_out(state: CardState, look: Look, keys: Keys, letters: str, now: float, room: tuple[int, int]) -> Laid:
    """The card of *state* in *room*: cells of a row, and rows."""
    width, rows = room[0], room[1] - WRITING.get(state.doing, 0)
    head = head_lines(state, look, now, width)
    notes = note_lines(state, look, keys, letters)
    for brief in (False, True):
        choices = choice_lines(state, look, keys, width, brief)
        parts = [head, notes, choices]
        if rows - sum(map(len, parts)) < ROOMY_ROWS:
            parts = [[line for line in part if line != BLANK] for part in parts]
        if (left := rows - sum(map(len, parts))) >= LEAST_ROWS:
            return Laid(tuple(parts[0]), tuple(parts[1]), tuple(parts[2]), left, True, not brief)
    why = [DrawnLine(((f" {row.text}", "warn"),)) for row in fitted([(NO_ROOM, Token.TEXT)], width - 2)]
    way_out = next((line for line in choices if line.action_at(0) == "close"), choices[-1])
    return Laid(tuple(head[:1]), tuple(why), (way_out,), LEAST_ROWS, False, False)
