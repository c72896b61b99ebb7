"""The help: the key table as rows, and what the shapes in the list mean."""

from collections.abc import Sequence

from kasmon.model.text import BLANK, Line, Span, Token, fitted
from kasmon.tui.keys import ACTIONS, Group, Keys, Where
from kasmon.tui.look import GLYPHS, Look

MEANINGS = {
    "starting": "its agent is not ready yet",
    "idle": "it waits for a prompt",
    "working": "a turn runs",
    "asking": "it waits for you",
    "limited": "its provider makes it wait",
    "paused": "set aside whole; nothing runs",
    "standby": "its machine sleeps until it is needed",
    "unsure": "nobody can tell; never taken for idle",
    "lost": "what carried it is gone",
    "ended": "it ended well, or you stopped it",
    "crashed": "it ended badly",
}
MARK_MEANINGS = (
    ("bypass", "its agent was told to skip permissions"),
    ("fallback", "it runs in a terminal, though the structured mode was asked for"),
    ("child", "a further window of the session above"),
    ("pin", "the preview stays with it"),
)
KEY_WIDTH = 18


def help_rows(keys: Keys, look: Look, width: int) -> Sequence[Line]:
    """Everything that a person can do, by group, then the shapes."""
    rows: list[Line] = []
    for group in Group:
        mine = [row for row in ACTIONS if row.group is group and keys.of(row.id)]
        rows += [BLANK, Line(((group.value, Token.HEADING),))] if mine else []
        for row in mine:
            place = "" if row.where in (Where.LIST, Where.CARD) else f" ({row.where.value})"
            rows += _entry(keys.all_shown(row.id, look.utf8), f"{row.help}{place}", width)
    rows += [BLANK, Line((("Shapes", Token.HEADING),))]
    for state, meaning in MEANINGS.items():
        rows += _entry(f"{GLYPHS[state][0 if look.utf8 else 1]}  {state}", meaning, width)
    for mark, meaning in MARK_MEANINGS:
        rows += _entry(look.mark(mark), meaning, width)
    return rows[1:]


def _entry(key: str, text: str, width: int) -> list[Line]:
    first: tuple[Span, ...] = (("  ", Token.TEXT), (f"{key:<{KEY_WIDTH}}", Token.STRONG))
    return fitted([(text, Token.TEXT)], width, first, ((" " * (KEY_WIDTH + 2), Token.TEXT),))
