"""The help: keys of the screen it was opened on, then the whole key table and the meaning of the list's symbols."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from textual import events
from textual.widget import Widget
from textual.widgets import Input

from kasmon.model.formatting import GLYPHS
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, cells, wrap
from kasmon.sanitize import clean_line
from kasmon.tui.action import Action, HelpGroup, KeyContext
from kasmon.tui.dialogs.base import PAGES, Dialog
from kasmon.tui.dialogs.fields import DialogField
from kasmon.tui.error_text import sentence
from kasmon.tui.keymap import ACTIONS, KeyMap
from kasmon.tui.session_list.branch_marks import branch_legend
from kasmon.tui.textual_ext.inputs import LineInput
from kasmon.tui.theme.look import ThemeStyles
from kasmon.tui.widgets.reader import Reader

MEANINGS = {
    "starting": "the agent is starting",
    "idle": "ready for a prompt",
    "working": "a turn is running",
    "asking": "a request is pending",
    "finished": "a turn ended and you have not viewed it yet",
    "limited": "waiting for the provider's usage limit",
    "paused": "paused; nothing runs",
    "standby": "paused while idle; resumes on next use",
    "hibernated": "ended to free memory; resumes on next use",
    "unsure": "status unknown; never treated as idle",
    "lost": "the host process died; restart the session",
    "ended": "exited normally, or you stopped it",
    "crashed": "exited with an error",
}
MARK_MEANINGS = (
    ("bypass", "the agent skips permissions"),
    ("fallback", "runs in a terminal, because structured mode was unavailable"),
    ("child", "an extra window of the session above"),
    ("pin", "the preview is pinned to this session"),
    ("proven", "sandbox verified"),
    ("unproven", "sandbox not verified"),
    ("breach", "sandbox check failed"),
)
WORDS = (
    ("w2 3/4", "wave 2, task 3 of 4"),
    ("asking ×2", "two pending requests"),
    ("0/4 done", "sessions of a wave that are done"),
)
MOUSE = (
    ("click", "session, wave or key: same as its key; column title: sort; state: filter or clear"),
    ("double click", "open the session"),
    ("wheel", "scroll"),
)
HOMES = {
    HelpGroup.REQUEST: KeyContext.CARD,
    HelpGroup.BOARD: KeyContext.BOARD,
    HelpGroup.FINISH: KeyContext.FINISH,
    HelpGroup.READING: KeyContext.READING,
    HelpGroup.REVIEW: KeyContext.REVIEW,
    HelpGroup.QUEUE: KeyContext.QUEUE,
    HelpGroup.SEARCH: KeyContext.SEARCH,
}
"""The context of a group's keys, which its heading implies; the keys of any other group count in the list."""
INDENT = 2
GAP = 2
LEAST_COLUMN = 16
"""The key column takes at most a third of the width, but at least this many cells."""


SCROLLS: Final = {"up": -1, "down": 1}
"""The keys that scroll by rows, whatever has the focus."""


class HelpEntry(NamedTuple):
    key: str
    """Keys, or a symbol."""
    text: str
    """What it does or means."""
    label: str = ""
    """Another text that a search matches."""


class HelpDialog(Dialog):
    """All keys, those of the screen below first; typed words filter the entries."""

    title_text = "Keys"

    def __init__(
        self,
        look: ThemeStyles,
        keys: KeyMap,
        contexts: Sequence[KeyContext] = (),
        offers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """*contexts* are the contexts of the screen below; *offers* are the keys that its footer names."""
        super().__init__(look, keys)
        self._contexts, self._offers = tuple(contexts), tuple(offers)
        self.words = LineInput(placeholder="key or text", id="help-words")
        self.reader = Reader(look, self._rows)

    def inside(self) -> Iterable[Widget]:
        yield DialogField("Search", self.words)
        yield self.reader

    def on_mount(self) -> None:
        self.offer(("up down", "scroll"), ("esc", "close"))
        self.begin(self.words)

    def on_input_changed(self, event: Input.Changed | None = None) -> None:
        self.reader.read(self._rows)

    def takes(self, key: events.Key) -> bool:
        """Scroll by the keys that type no character."""
        if self._buffered_keys is None and key.key in SCROLLS:
            self.reader.scroll_rows(SCROLLS[key.key])
        elif self._buffered_keys is None and key.key in PAGES:
            self.reader.scroll_pages(PAGES[key.key])
        else:
            return super().takes(key)
        return True

    def share_room(self) -> None:
        """Let the entries scroll, but not the search field."""
        super().share_room()
        self.reader.styles.max_height = max(1, self.room - (1 if self.has_class("-tight") else 2))

    def _rows(self, width: int) -> Sequence[TextLine]:
        return help_rows(self.keys, self.look, width, self._contexts, self._offers, self.words.value)


def help_rows(
    keys: KeyMap,
    look: ThemeStyles,
    width: int,
    contexts: Sequence[KeyContext] = (),
    offers: Sequence[tuple[str, str]] = (),
    query: str = "",
) -> Sequence[TextLine]:
    """Return the entries of the help, each section under its heading.

    Args:
        contexts: the contexts that have the keyboard; their keys come first.
        offers: the keys, as shown, in the footer of the screen below; they come before everything else.
        query: only entries that contain all of these are shown.
    """
    utf8 = look.utf8
    longest = max(cells(keys.all_shown(row.id, utf8)) for row in ACTIONS)
    column = min(GAP + longest, max(LEAST_COLUMN, width // 3))
    wanted = query.casefold().split()
    rows: list[TextLine] = []
    for title, entries in _sections(keys, look, contexts, offers):
        shown = [entry for entry in entries if all(word in f"{title} {' '.join(entry)}".casefold() for word in wanted)]
        if shown:
            rows += [BLANK, TextLine(((title, Token.HEADING),))]
            for key, text, _ in shown:
                rows += _entry_rows(key, text, column, width)
    if not rows:
        return [BLANK, *wrap([(f"No key matches {clean_line(query)!r}.", Token.NOTICE)], width)]
    return rows[1:]


def _sections(
    keys: KeyMap, look: ThemeStyles, contexts: Sequence[KeyContext], offers: Sequence[tuple[str, str]]
) -> Iterable[tuple[str, Sequence[HelpEntry]]]:
    if offers:
        yield "In this dialog", [HelpEntry(key, word) for key, word in offers]
    for place in contexts:
        mine = [row for row in ACTIONS if row.where is place and keys.of(row.id)]
        yield sentence(place.value), [HelpEntry(keys.all_shown(row.id, look.utf8), row.help, row.label) for row in mine]
    for group in HelpGroup:
        for title, mine in _group_by_context(group, keys).items():
            rest = [row for row in mine if row.where not in contexts]
            yield (
                sentence(title),
                [HelpEntry(keys.all_shown(row.id, look.utf8), _help_text(row), row.label) for row in rest],
            )
    shapes = 0 if look.utf8 else 1
    shown = [HelpEntry(f"{GLYPHS[state][shapes]}  {state}", meaning) for state, meaning in MEANINGS.items()]
    shown += [HelpEntry(look.mark(mark), meaning) for mark, meaning in MARK_MEANINGS]
    shown += [HelpEntry(text.replace("×", look.mark("times")), meaning) for text, meaning in WORDS]
    shown += [HelpEntry(text, meaning) for text, meaning in branch_legend(look)]
    yield "Symbols in the list", shown
    yield "Mouse", [HelpEntry(what, meaning) for what, meaning in MOUSE]


def _help_text(row: Action) -> str:
    return f"{row.help} (everywhere)" if row.where is KeyContext.EVERYWHERE else row.help


def _group_by_context(group: HelpGroup, keys: KeyMap) -> dict[str, list[Action]]:
    """The actions of *group* that have a key: by the group's heading, or by their context where that differs."""
    contexts: dict[str, list[Action]] = {}
    home = HOMES.get(group, KeyContext.LIST)
    for row in (row for row in ACTIONS if row.group is group and keys.of(row.id)):
        contexts.setdefault(group.value if row.where in (home, KeyContext.EVERYWHERE) else row.where.value, []).append(
            row
        )
    return contexts


def _entry_rows(key: str, text: str, column: int, width: int) -> list[TextLine]:
    """Keys with their description beside them, or below if the keys leave no space."""
    indent: Span = (" " * (column + INDENT), Token.TEXT)
    shown: tuple[Span, ...] = ((" " * INDENT, Token.TEXT), (key, Token.STRONG))
    if cells(key) + GAP > column:
        return [TextLine(shown), *wrap([(text, Token.TEXT)], width, (indent,), (indent,))]
    first = (*shown, (" " * (column - cells(key)), Token.TEXT))
    return wrap([(text, Token.TEXT)], width, first, (indent,))
