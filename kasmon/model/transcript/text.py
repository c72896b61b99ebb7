"""Lines of styled text, and fitting text into a width in terminal cells."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

NARROWEST: Final = 2
"""The smallest width, in cells: one wide character."""
ROOM: Final = 8
"""If less than this would remain for the text, in cells, it is drawn without its margin."""
TAB: Final = 4
JOINER: Final = "\u200d"
WIDENER: Final = "\ufe0f"


class Token(StrEnum):
    """The kind of a piece of text; the front end defines its style."""

    TEXT = "text"
    FAINT = "faint"
    HEADING = "heading"
    STRONG = "strong"
    EMPHASIS = "emphasis"
    STRIKE = "strike"
    LINK = "link"
    """A link, or a button in the transcript."""
    CODE = "code"
    CODE_BLOCK = "code-block"
    BULLET = "bullet"
    PROMPT = "prompt"
    THOUGHT = "thought"
    TOOL = "tool"
    SUBJECT = "subject"
    OUTPUT = "output"
    OK = "ok"
    FAILED = "failed"
    ADDED = "added"
    REMOVED = "removed"
    SAME = "same"
    HUNK = "hunk"
    NUMBER = "number"
    DONE = "done"
    DOING = "doing"
    OPEN = "open"
    ASKS = "asks"
    ANSWER = "answer"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    LIMIT = "limit"
    BOUNDARY = "boundary"
    SESSION = "session"
    FOUND = "found"
    KEYWORD = "keyword"
    NAME = "name"
    LITERAL = "literal"
    FIGURE = "figure"
    COMMENT = "comment"
    LOUD = "loud"
    RED = "red"
    GREEN = "green"
    YELLOW = "yellow"
    BLUE = "blue"
    MAGENTA = "magenta"
    CYAN = "cyan"
    LOUD_RED = "loud-red"
    LOUD_GREEN = "loud-green"
    LOUD_YELLOW = "loud-yellow"
    LOUD_BLUE = "loud-blue"
    LOUD_MAGENTA = "loud-magenta"
    LOUD_CYAN = "loud-cyan"


Span: TypeAlias = tuple[str, Token]
Margin: TypeAlias = tuple[Span, ...]
"""The text left of a line; each of its characters is one cell wide."""


class TextLine(msgspec.Struct, frozen=True):
    """One row: cleaned pieces of text, left to right."""

    spans: tuple[Span, ...] = ()
    code: int = 0
    """The number of its code block in its text, counted from 1; 0 for none."""
    fold: bool = False
    """It represents hidden rows, or can hide them again."""
    button: bool = False
    """A click on it copies its code block."""
    links: tuple[str, ...] = ()
    """The addresses in its paragraph, as they were written."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


BLANK: Final = TextLine()
NARROW: Final = (
    *map(chr, (*range(0x20, 0x7F), *range(0xA0, 0x100))),
    *"…·•–—‘’“”‹›▶▸▾▴●○◆◇◌◐◔▣▯■□☐☒✓✔✕✗✘✻❯⎿→←↑↓↳⇄⏸│─└├┌┐┘┤┬┴┼╭╮╰╯▌█⟨⟩␤␍␉␠",
)
"""The most frequent characters, each one cell wide: a text of these does not load the tables of all the others."""
_known = dict.fromkeys(NARROW, 1)
_clinging = {WIDENER, JOINER}
"""Measured characters that attach to the one before them."""


def cells(text: str) -> int:
    """Return how many cells *text* takes at most; terminals that join emoji show fewer."""
    return len(text) if text.isascii() else sum(_widths(text))


def wrap(
    spans: Sequence[Span], width: int, first: Margin = (), rest: Margin = (), *, words: bool = True
) -> list[TextLine]:
    """Return *spans* as rows of at most *width* cells, broken between words, or anywhere.

    Args:
        spans: text without line breaks.
        width: at least `NARROWEST` is used.
        first, rest: the margin of the first row and of those below it; equally wide.
        words: break at spaces, which are left out there; else nothing is left out.
    """
    width = max(width, NARROWEST)
    margin = sum(len(text) for text, _ in first)
    if width - margin < ROOM:
        spans, first, rest, margin = (*first, *spans), (), (), 0
    if any("\t" in text for text, _ in spans):
        spans = _expand_tabs(spans)
    whole = "".join(text for text, _ in spans)
    pieces = _breaks(whole, width - margin, words)
    if len(pieces) == 1 and pieces[0] == (0, len(whole)):
        return [TextLine((*first, *spans))] if whole or not _is_blank(first) else [BLANK]
    return [
        TextLine((*(first if number == 0 else rest), *_cut(spans, start, end)))
        for number, (start, end) in enumerate(pieces)
    ]


def wrap_paragraphs(spans: Sequence[Span], width: int, first: Margin = ()) -> list[TextLine]:
    """Return *spans*, which may hold line breaks, as rows; *first* left of the first, blanks left of the others."""
    rest: Margin = ((" " * sum(len(text) for text, _ in first), Token.TEXT),) if first else ()
    rows: list[TextLine] = []
    for line in by_line(spans):
        rows += wrap(line, width, rest if rows else first, rest)
    return rows


def by_line(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield the lines of *spans*, which may hold line breaks."""
    line: list[Span] = []
    for text, token in spans:
        head, *others = text.split("\n")
        line.append((head, token))
        for other in others:
            yield line
            line = [(other, token)]
    yield line


def _is_blank(margin: Margin) -> bool:
    return not any(text.strip() for text, _ in margin)


def _expand_tabs(spans: Sequence[Span]) -> list[Span]:
    """Return *spans* with spaces for tabs, at the tab stops of the whole text."""
    expanded: list[Span] = []
    so_far = ""
    for text, token in spans:
        longer = (so_far + text).expandtabs(TAB)
        expanded.append((longer[len(so_far) :], token))
        so_far = longer
    return expanded


def _breaks(text: str, max_cells: int, words: bool) -> list[tuple[int, int]]:
    """Return the start and end of each row of *text*; one empty row for no text."""
    if text.isascii() and len(text) <= max_cells:
        return [(0, len(text))]
    widths = None if text.isascii() else _widths(text)
    rows = []
    start = 0
    while start < len(text):
        end = min(start + max_cells, len(text)) if widths is None else _reach(text, widths, start, max_cells)
        behind = end
        if words and end < len(text):
            space = text.rfind(" ", start, end + 1)
            if space > start and not text[start:space].isspace():
                end = behind = space
                while behind < len(text) and text[behind] == " ":
                    behind += 1
        rows.append((start, end))
        start = behind
    return rows or [(0, 0)]


def _reach(text: str, widths: Sequence[int], start: int, max_cells: int) -> int:
    """Return the end of the longest row from *start*; combined characters stay together if they fit into a row."""
    end, left = start, max_cells
    while end < len(text) and widths[end] <= left:
        left -= widths[end]
        end += 1
    if end == len(text):
        return end
    whole = end
    while whole > start and (text[whole] in _clinging or text[whole - 1] == JOINER):
        whole -= 1
    return whole if whole > start else max(end, start + 1)


def _widths(text: str) -> list[int]:
    widths = []
    before = 0
    for character in text:
        width = _known.get(character)
        if width is None:
            width = _known[character] = _measure(character)
        if character == WIDENER and before == 1:
            width = 1  # it requests the wide, coloured form of the character before it
        widths.append(width)
        before = width
    return widths


def _measure(character: str) -> int:
    from unicodedata import category  # only here: most text needs neither, and programs that show it start sooner

    from wcwidth import wcwidth

    width, is_mark = max(0, wcwidth(character)), category(character)[0] == "M"
    if is_mark or width == 0:
        _clinging.add(character)
    return max(width, 1) if category(character) == "Mc" else width


def _cut(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Return the part of *spans* between two offsets of their whole text."""
    part: list[Span] = []
    at = 0
    for text, token in spans:
        if at + len(text) > start and at < end:
            part.append((text[max(0, start - at) : end - at], token))
        at += len(text)
    return part
