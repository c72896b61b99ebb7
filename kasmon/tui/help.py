"""The help: the key table as rows, and what the shapes in the list mean."""

from collections.abc import Sequence

from kasmon.model.glyph import GLYPHS
from kasmon.model.text import BLANK, Line, Span, Token, cells, fitted
from kasmon.tui.action import Action, Group, Where
from kasmon.tui.keys import ACTIONS, Keys
from kasmon.tui.look import Look
from kasmon.tui.sentence import sentence

MEANINGS = {
    "starting": "its agent is not ready yet",
    "idle": "it waits for a prompt",
    "working": "a turn runs",
    "asking": "it waits for you",
    "limited": "its provider makes it wait",
    "paused": "set aside whole; nothing runs",
    "standby": "its machine sleeps until it is needed",
    "unsure": "nobody can tell; never taken for idle",
    "lost": "contact with it is lost; restart it",
    "ended": "it ended well, or you stopped it",
    "crashed": "it ended badly",
}
MARK_MEANINGS = (
    ("bypass", "its agent was told to skip permissions"),
    ("fallback", "it runs in a terminal, though the structured mode was asked for"),
    ("child", "a further window of the session above"),
    ("pin", "the preview stays with it"),
    ("proven", "its sandbox was proven from within"),
    ("unproven", "its sandbox is not proven"),
    ("breach", "its sandbox is not as it should be"),
)
WORDS = (
    ("w2 3/4", "wave 2, of whose 4 tasks this is the third"),
    ("asking ×2", "two requests of it wait"),
    ("0/4 done", "so many sessions of a wave have ended well"),
)
MOUSE = (
    ("click", "on a session, a wave, a key: what its key does; on a title: sort; on a state: only those, or all again"),
    ("double click", "on a session: go into it"),
    ("wheel", "scrolls what is under it"),
)
HOMES = {
    Group.REQUEST: Where.CARD,
    Group.BOARD: Where.BOARD,
    Group.READING: Where.READING,
    Group.QUEUE: Where.QUEUE,
    Group.SEARCH: Where.SEARCH,
}
"""Where the keys of a group count, which its heading says; those of any other group count in the list."""
INDENT = 2
GAP = 2
LEAST_COLUMN = 16
"""The column of keys has at most a third of the width, but never fewer cells than this."""


def help_rows(keys: Keys, look: Look, width: int) -> Sequence[Line]:
    """Everything that a person can do, by group, then the shapes."""
    utf8, shapes = look.utf8, 0 if look.utf8 else 1
    rows: list[Line] = []
    longest = max(cells(keys.all_shown(row.id, utf8)) for row in ACTIONS)
    column = min(GAP + longest, max(LEAST_COLUMN, width // 3))
    for group in Group:
        for place, mine in _places(group, keys).items():
            rows += [BLANK, Line(((sentence(place), Token.HEADING),))]
            for row in mine:
                word = " (everywhere)" if row.where is Where.EVERYWHERE else ""
                rows += _entry(keys.all_shown(row.id, utf8), f"{row.help}{word}", column, width)
    shown = [(f"{GLYPHS[state][shapes]}  {state}", meaning) for state, meaning in MEANINGS.items()]
    shown += [(look.mark(mark), meaning) for mark, meaning in MARK_MEANINGS]
    shown += [(words.replace("×", look.mark("times")), meaning) for words, meaning in WORDS]
    for title, entries in (("What stands in the list", shown), ("The mouse", MOUSE)):
        rows += [BLANK, Line(((title, Token.HEADING),))]
        for what, meaning in entries:
            rows += _entry(what, meaning, column, width)
    return rows[1:]


def _places(group: Group, keys: Keys) -> dict[str, list[Action]]:
    """The actions of *group* that have a key: under its heading, and under the name of each other place."""
    places: dict[str, list[Action]] = {}
    home = HOMES.get(group, Where.LIST)
    for row in (row for row in ACTIONS if row.group is group and keys.of(row.id)):
        places.setdefault(group.value if row.where in (home, Where.EVERYWHERE) else row.where.value, []).append(row)
    return places


def _entry(key: str, text: str, column: int, width: int) -> list[Line]:
    """Keys, and beside them what they do; below them where they leave no room."""
    indent: Span = (" " * (column + INDENT), Token.TEXT)
    shown: tuple[Span, ...] = ((" " * INDENT, Token.TEXT), (key, Token.STRONG))
    if cells(key) + GAP > column:
        return [Line(shown), *fitted([(text, Token.TEXT)], width, (indent,), (indent,))]
    first = (*shown, (" " * (column - cells(key)), Token.TEXT))
    return fitted([(text, Token.TEXT)], width, first, (indent,))
