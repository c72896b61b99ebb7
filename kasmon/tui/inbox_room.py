"""How the inbox shares a window between its list and the card. Pure; a size is columns and rows."""

from typing import Final, TypeAlias

from kasmon.tui.ask_layout import BORDER, SIDES

Size: TypeAlias = tuple[int, int]
BESIDE_COLUMNS: Final = 140
"""From this width on the card stands beside the list, else below it."""
LIST_SHARE: Final = 44
"""Percent of the width that the list has beside a card."""
LOW_ROWS: Final = 30
"""In a lower window the list makes room for a card that is written on, or that has the keys."""
BARS: Final = 2
"""Rows of the line above and the line below."""
FEW: Final = 4
"""Rows that the list has in a low window, and at least in others where it needs them."""


def is_beside(window: Size) -> bool:
    """Whether the card stands beside the list."""
    return window[0] >= BESIDE_COLUMNS


def list_columns(window: Size) -> int:
    """The list's cells beside a card."""
    return window[0] * LIST_SHARE // 100


def list_rows(window: Size, needed: int, *, tight: bool) -> int:
    """The list's rows above a card; *tight* where the card needs what there is."""
    rows = window[1]
    if tight and rows < LOW_ROWS:
        return 1
    most = FEW if rows < LOW_ROWS else max(FEW, (rows - BARS) // 3)
    return max(1, min(needed, most))


def room(window: Size, listed: int) -> Size:
    """Cells of a row and rows within the card's border; *listed* rows are the list's where it stands above."""
    columns, rows = window
    if is_beside(window):
        return columns - list_columns(window) - SIDES, rows - BARS - BORDER
    return columns - SIDES, rows - BARS - BORDER - listed
