"""Markdown as rows of a terminal: lists, quotes, tables, code, emphasis, links with their addresses.

No word is ever left out: a part of which the rows would not have all words is drawn as it is written.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from kasmon.model.transcript import syntax
from kasmon.model.transcript.markdown import table
from kasmon.model.transcript.markdown.parser import DEEPEST, parse_blocks, parse_inline
from kasmon.model.transcript.text import BLANK, Margin, Span, TextLine, Token, by_line, wrap
from kasmon.sanitize import clean_line

if TYPE_CHECKING:
    from markdown_it.token import Token as MarkdownToken

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)$")
TASK: Final = re.compile(r"\[([ xX])\] +(?=\S)")
MARKED: Final = re.compile(r"[`*_~\[\]<|\\$#]|^[ >]*(?:[-+]|\d{1,9}[.)]) |^ {0,3}[->]|://|^(?: {4}|\t)", re.MULTILINE)
"""A text without any of these has no Markdown."""
BLOCKS: Final = re.compile(
    r"^[ >]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)|^ {0,3}[->#`~*_=]|^(?: {4}|\t)|\||\n[ \t]*\n[ \t]*\S", re.MULTILINE
)
"""A text without any of these is one paragraph."""
PREFIX: Final = re.compile(r"^[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+)*")
"""What is left of a table's row within lists and quotes."""
BAR: Final[Margin] = (("│ ", Token.FAINT),)
RULE_CELLS: Final = 24
"""Short, to distinguish it from the end of a turn."""
LONGEST: Final = 20_000
"""A part without a blank line that is longer, in characters, is drawn as it is written."""
COPY: Final = "copy"
"""The text of the button that copies a code block."""


def draw_markdown(
    text: str, width: int, margin: Margin, *, colours: bool = True, buttons: bool = False
) -> list[TextLine]:
    """Return cleaned Markdown as rows of at most *width* cells, *margin* left of each.

    Args:
        colours: highlight code by its language.
        buttons: each code block has a row with its language and a button that copies it.
    """
    rows: list[TextLine] = []
    blocks = 0
    for part in _parts(text.rstrip("\n")):
        drawn, count = _draw_part(part, width, margin, colours, buttons)
        rows += (msgspec.structs.replace(row, code=row.code + blocks) if row.code and blocks else row for row in drawn)
        blocks += count
    return rows


def code_blocks(text: str) -> list[str]:
    """Return the text of each code block of cleaned Markdown, in order."""
    found: list[str] = []
    for part in _parts(text.rstrip("\n")):
        if MARKED.search(part) and len(part) <= LONGEST:
            found += (each.content.removesuffix("\n") for each in parse_blocks(part) if _is_code(each))
    return found


def _parts(text: str) -> Iterator[str]:
    """Yield *text* in parts that can be drawn on their own, joined by line breaks: each ends before a line at the left
    edge that follows a blank line, outside of code. Parts that did not change need no new renderer.
    """
    fence, part = "", list[str]()
    for line in text.split("\n"):
        if not fence and part and not part[-1].strip() and line[:1].strip():
            yield "\n".join(part)
            part = []
        found = FENCE.match(line) if "```" in line or "~~~" in line else None
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2]:
            fence = ""
        part.append(line)
    yield "\n".join(part)


@lru_cache(maxsize=64)
def _draw_part(text: str, width: int, margin: Margin, colours: bool, buttons: bool) -> tuple[tuple[TextLine, ...], int]:
    """Return the rows of *text*, and how many code blocks it has."""
    if not MARKED.search(text) or len(text) > LONGEST:
        return tuple(_as_written(text, width, margin)), 0
    if not BLOCKS.search(text):
        return tuple(_paragraph(text, width, margin)), 0
    tokens = parse_blocks(text)
    renderer = _PartRenderer(text.split("\n"), width, margin, colours, buttons)
    if max((each.level for each in tokens), default=0) <= DEEPEST:
        renderer.draw(tokens)
        if _join_text(text) == _join_text(renderer.drawn):
            return tuple(renderer.rows), renderer.blocks
    return tuple(_as_written(text, width, margin)), sum(map(_is_code, tokens))


def _paragraph(text: str, width: int, margin: Margin) -> Iterator[TextLine]:
    """Yield the rows of one paragraph, and of the blank lines below it."""
    body = text.rstrip("\n")
    spans, links = parse_inline(body)
    if links and _join_text("".join(piece for piece, _ in spans)) != _join_text(body):
        spans, links = [(body, Token.TEXT)], []
    for line in by_line(spans):
        for row in wrap(line, width, margin, margin):
            yield TextLine(row.spans, links=tuple(links)) if links else row
    yield from [BLANK] * (len(text) - len(body))


def _as_written(text: str, width: int, margin: Margin) -> Iterator[TextLine]:
    for line in text.split("\n"):
        yield from wrap([(line, Token.TEXT)], width, margin, margin)


def _join_text(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _is_code(token: "MarkdownToken") -> bool:
    return token.type in ("fence", "code_block")


class _Container(msgspec.Struct):
    """A list item or a quote that is open: what is left of its first row, and of its other rows."""

    first: Margin
    rest: Margin
    is_quote: bool = False
    is_begun: bool = False


class _PartRenderer:
    """Draws the tokens of one part."""

    def __init__(self, lines: Sequence[str], width: int, margin: Margin, colours: bool, buttons: bool) -> None:
        self.rows: list[TextLine] = []
        self.blocks = 0
        self._lines, self._width, self._margin = lines, width, margin
        self._colours, self._buttons = colours, buttons
        self._open: list[_Container] = []
        self._line = 0
        """The first line of the source that is not drawn yet."""
        self._texts: list[str] = []

    @property
    def drawn(self) -> str:
        """All text that was drawn, without margins of containers that hold no words."""
        return "".join(self._texts)

    def draw(self, tokens: "Sequence[MarkdownToken]") -> None:
        at = 0
        while at < len(tokens):
            token = tokens[at]
            match token.type:
                case "blockquote_open":
                    self._open.append(_Container(BAR, BAR, is_quote=True))
                case "list_item_open":
                    self._open_item(token, tokens[at + 1 : at + 3])
                case "blockquote_close" | "list_item_close":
                    self._close(self._open[-1])
                case "fence" | "code_block":
                    self._code(token)
                case "hr":
                    self._begin(token)
                    self._add([("─" * RULE_CELLS, Token.FAINT)], words=False)
                case "table_open":
                    at = next(n for n in range(at, len(tokens)) if tokens[n].type == "table_close")
                    self._table(token)
                case "inline":
                    self._inline(token, is_heading=tokens[at - 1].type == "heading_open")
            at += 1
        self._fill(len(self._lines))

    def _open_item(self, token: "MarkdownToken", content: "Sequence[MarkdownToken]") -> None:
        sign = f"{token.info}{token.markup}" if token.info else "•"
        self._texts.append(sign)
        if not token.info and content and content[-1].type == "inline" and (task := TASK.match(content[-1].content)):
            sign = "☐" if task[1] == " " else "☒"
            content[-1].content = content[-1].content[task.end() :]
            self._texts.append(task[1])
        mark = f"{sign} "
        self._open.append(_Container(((mark, Token.BULLET),), ((" " * len(mark), Token.TEXT),)))
        if token.map:
            self._fill(token.map[0])

    def _close(self, container: _Container) -> None:
        if not container.is_begun and not container.is_quote:
            self._add([("", Token.TEXT)])  # an empty item
        self._open.pop()

    def _inline(self, token: "MarkdownToken", *, is_heading: bool) -> None:
        self._begin(token)
        spans, links = parse_inline(token.content)
        plain = (
            Token.HEADING if is_heading else Token.FAINT if any(each.is_quote for each in self._open) else Token.TEXT
        )
        for line in by_line((text, plain if piece is Token.TEXT else piece) for text, piece in spans):
            self._add(line, links=tuple(links))

    def _code(self, token: "MarkdownToken") -> None:
        self._begin(token)
        self.blocks += 1
        language, lines = clean_line(token.info.strip()), token.content.removesuffix("\n").split("\n")
        plain: list[tuple[Span, ...]] = [((line, Token.CODE_BLOCK),) for line in lines]
        drawn = syntax.highlight(lines, language) if self._colours and language else plain
        has_button = self._buttons and token.type == "fence"
        if language or has_button:
            button = [(" · " if language else "", Token.FAINT), (COPY, Token.LINK)] if has_button else []
            self._texts.append(language)
            self._add([(language, Token.FAINT), *button], bar=BAR, code=self.blocks, button=has_button)
        for line in drawn:
            self._texts += (text for text, _ in line)
            self._add(line or (("", Token.CODE_BLOCK),), bar=BAR, code=self.blocks, words=False)

    def _table(self, token: "MarkdownToken") -> None:
        self._begin(token)
        start, end = token.map or (0, 0)
        whole = [PREFIX.sub("", line) for line in self._lines[start:end]]
        rows = next((n for n, line in enumerate(whole) if "|" not in line), len(whole))  # else text is a row of a cell
        lines = whole[:rows]
        links: list[str] = []

        def inline(cell: str) -> tuple[Span, ...]:
            spans, found = parse_inline(cell)
            links.extend(found)
            return tuple(spans)

        first, rest = self._margins()
        drawn = table.draw_table(lines, self._width, rest, inline)
        if drawn:
            self._texts += (text for cells in table.split_rows(lines, inline) for cell in cells for text, _ in cell)
            begin = msgspec.structs.replace(drawn[0], spans=(*first, *drawn[0].spans[len(rest) :]))
            self.rows += (msgspec.structs.replace(row, links=tuple(links)) for row in (begin, *drawn[1:]))
        for line in whole[rows:] if drawn else whole:
            self._add([(line, Token.TEXT)] if "|" in line else inline(line), words="|" not in line)

    def _begin(self, token: "MarkdownToken") -> None:
        """Draw the blank lines above *token*."""
        if token.map:
            self._fill(token.map[0])
            self._line = token.map[1]

    def _fill(self, line: int) -> None:
        """Draw the blank lines of the source before *line*."""
        for number in range(self._line, line):
            bars = BAR if self._lines[number].lstrip().startswith(">") else ()
            self.rows.append(TextLine((*self._margin, *bars)) if bars else BLANK)
        self._line = max(self._line, line)

    def _margins(self) -> tuple[Margin, Margin]:
        first: Margin = self._margin
        rest: Margin = self._margin
        for each in self._open:
            first, rest = (*first, *(each.rest if each.is_begun else each.first)), (*rest, *each.rest)
            each.is_begun = True
        return first, rest

    def _add(
        self,
        spans: Sequence[Span],
        *,
        bar: Margin = (),
        words: bool = True,
        code: int = 0,
        button: bool = False,
        links: tuple[str, ...] = (),
    ) -> None:
        first, rest = self._margins()
        if not code:
            self._texts += (text for text, _ in spans)
        for row in wrap(spans, self._width, (*first, *bar), (*rest, *bar), words=words):
            self.rows.append(TextLine(row.spans, code=code, button=button, links=links))
