"""Light Markdown for a terminal: headings, lists, quotes, tables, code, bold; everything else is unchanged."""

import re
from typing import Final

import msgspec

from kasmon.model.transcript import syntax as code
from kasmon.model.transcript import table
from kasmon.model.transcript.text import Margin, Span, TextLine, Token, wrap

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)$")
HEADING: Final = re.compile(r" {0,3}#{1,6} +(\S.*)$")
ITEM: Final = re.compile(r"( {0,12})(?:[-*+]|(\d{1,4}[.)])) +(?=\S)")
QUOTE: Final = re.compile(r" {0,3}> ?")
INLINE: Final = re.compile(r"(?P<tick>`+)(?P<code>[^`]+)(?P=tick)(?!`)|\*\*(?P<bold>[^*\s](?:[^*]*[^*\s])?)\*\*")
RULE: Final = re.compile(r" {0,3}(?:-{3,}|\*{3,}|(?:- ){2,}-|(?:\* ){2,}\*) *$")
TASK: Final = re.compile(r"\[([ xX])\] +(?=\S)")
BAR: Final[Margin] = (("│ ", Token.FAINT),)
RULE_CELLS: Final = 24
"""Short, to distinguish it from the end of a turn."""
LONGEST: Final = 1000
"""A line longer than this, in characters, is text without bold or code."""


class Paragraph(msgspec.Struct, frozen=True):
    """One line of the source: its text, its margins, and whether it may only be broken where it must."""

    spans: tuple[Span, ...]
    first: Margin = ()
    rest: Margin = ()
    wraps: bool = True


def draw_markdown(text: str, width: int, margin: Margin, *, colours: bool = True) -> list[TextLine]:
    """Return cleaned Markdown as rows of at most *width* cells, *margin* left of each; code in *colours*, or in one."""
    rows: list[TextLine] = []
    for number, fence in enumerate(_fences(text.rstrip("\n"))):
        if fence.language is None:
            rows += _prose(fence.lines, width, margin)
        else:
            rows += _code(fence, width, margin, (number + 1) // 2, colours)
    return rows


def _prose(lines: list[str], width: int, margin: Margin) -> list[TextLine]:
    """Return the lines outside of code; only marks of headings, items, quotes, tables, code and bold are left out."""
    rows: list[TextLine] = []
    at = 0
    while at < len(lines):
        end = at
        if at + 1 < len(lines) and table.begins(lines[at], lines[at + 1]):
            end = next((n for n in range(at + 2, len(lines)) if not table.belongs(lines[n])), len(lines))
            drawn_table = table.draw_table(lines[at:end], width, margin, inline)
            end = end if drawn_table else at
            rows += drawn_table
        if end == at:
            part, end = _line(lines[at]), at + 1
            rows += wrap(part.spans, width, (*margin, *part.first), (*margin, *part.rest), words=part.wraps)
        at = end
    return rows


def _code(fence: "_Part", width: int, margin: Margin, number: int, colours: bool) -> list[TextLine]:
    language, bar = fence.language or "", (*margin, *BAR)
    plain = [((line, Token.CODE_BLOCK),) for line in fence.lines]
    lines = code.highlight(fence.lines, language) if colours and language else plain
    rows = wrap(((language, Token.FAINT),), width, bar, bar) if language else []
    rows += [row for line in lines for row in wrap(line or (("", Token.CODE_BLOCK),), width, bar, bar, words=False)]
    return [TextLine(row.spans, number) for row in rows]


def code_blocks(text: str) -> list[str]:
    """Return the text of each code block of cleaned Markdown, in order."""
    return ["\n".join(fence.lines) for fence in _fences(text) if fence.language is not None]


class _Part(msgspec.Struct):
    """Lines between two fences; `language` is None outside of code, otherwise the text behind the opening fence."""

    language: str | None
    lines: list[str]


def _fences(text: str) -> list[_Part]:
    """Return the parts of *text*, alternately outside and inside of code."""
    parts = [_Part(None, [])]
    fence = ""
    for line in text.split("\n"):
        found = FENCE.match(line)
        if fence and found and found[1].startswith(fence) and not found[2]:
            fence = ""
            parts.append(_Part(None, []))
        elif found and not fence:
            fence = found[1]
            parts.append(_Part(found[2], []))
        else:
            parts[-1].lines.append(line)
    return parts


def _line(line: str) -> Paragraph:
    if heading := HEADING.match(line):
        return Paragraph(((heading[1], Token.HEADING),))
    if RULE.match(line):
        return Paragraph((("─" * RULE_CELLS, Token.FAINT),), wraps=False)
    if item := ITEM.match(line):
        sign, behind = item[2] or "•", item.end()
        if not item[2] and (task := TASK.match(line, behind)):
            sign, behind = "☐" if task[1] == " " else "☒", task.end()
        mark = f"{item[1]}{sign} "
        return Paragraph(inline(line[behind:]), ((mark, Token.BULLET),), ((" " * len(mark), Token.TEXT),))
    if quote := QUOTE.match(line):
        return Paragraph(((line[quote.end() :], Token.FAINT),), BAR, BAR)
    if line.lstrip().startswith("|"):
        return Paragraph(((line, Token.TEXT),), wraps=False)
    return Paragraph(inline(line))


def inline(line: str) -> tuple[Span, ...]:
    """Return *line* split into plain text, code and bold."""
    if len(line) > LONGEST or ("`" not in line and "**" not in line):
        return ((line, Token.TEXT),)
    spans: list[Span] = []
    at = 0
    for found in INLINE.finditer(line):
        if found.start() > at:
            spans.append((line[at : found.start()], Token.TEXT))
        code = found["code"]
        spans.append((code, Token.CODE) if code is not None else (found["bold"], Token.STRONG))
        at = found.end()
    if at < len(line) or not spans:
        spans.append((line[at:], Token.TEXT))
    return tuple(spans)
