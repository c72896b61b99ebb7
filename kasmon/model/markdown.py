"""Light Markdown for a terminal: headings, lists, quotes, code, bold; everything else stays as it was written."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kasmon.model import code
from kasmon.model.text import Line, Margin, Span, Token, fitted

FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*)$")
HEADING: Final = re.compile(r" {0,3}#{1,6} +(\S.*)$")
ITEM: Final = re.compile(r"( {0,12})(?:[-*+]|(\d{1,4}[.)])) +(?=\S)")
QUOTE: Final = re.compile(r" {0,3}> ?")
INLINE: Final = re.compile(r"(?P<tick>`+)(?P<code>[^`]+)(?P=tick)(?!`)|\*\*(?P<bold>[^*\s](?:[^*]*[^*\s])?)\*\*")
LONGEST: Final = 1000
"""A line longer than this, in characters, is text without bold or code."""


class Paragraph(msgspec.Struct, frozen=True):
    """One line of the source: its text, what stands left of it, and whether it may be broken only where it must."""

    spans: tuple[Span, ...]
    first: Margin = ()
    rest: Margin = ()
    words: bool = True
    code: int = 0
    """Which code block it belongs to, the first being 1; 0 for none."""


def drawn(text: str, width: int, margin: Margin, *, colours: bool = True) -> list[Line]:
    """Cleaned Markdown as rows of at most *width* cells, *margin* left of each; its code in *colours*, or in one."""
    rows: list[Line] = []
    for part in paragraphs(text, colours=colours):
        made = fitted(part.spans, width, (*margin, *part.first), (*margin, *part.rest), words=part.words)
        rows += [Line(row.spans, part.code) for row in made] if part.code else made
    return rows


def paragraphs(text: str, *, colours: bool = True) -> Iterator[Paragraph]:
    """The lines of *text*; only the marks of headings, items, quotes, fences, code and bold are left out."""
    for number, fence in enumerate(_fences(text)):
        if fence.language is None:
            yield from map(_line, fence.lines)
            continue
        if fence.language:
            yield Paragraph(((fence.language, Token.FAINT),), *_bar(), code=(number + 1) // 2)
        plain = (((line, Token.CODE_BLOCK),) for line in fence.lines)
        for spans in code.coloured(fence.lines, fence.language) if colours and fence.language else plain:
            yield Paragraph(spans or (("", Token.CODE_BLOCK),), *_bar(), words=False, code=(number + 1) // 2)


def code_blocks(text: str) -> list[str]:
    """The text of each code block of cleaned Markdown, in order."""
    return ["\n".join(fence.lines) for fence in _fences(text) if fence.language is not None]


class _Part(msgspec.Struct):
    """Lines between two fences; `language` is None outside of code, and what stands behind the fence inside."""

    language: str | None
    lines: list[str]


def _fences(text: str) -> list[_Part]:
    """The parts of *text*, outside and inside of code in turn."""
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


def _bar() -> tuple[Margin, Margin]:
    return (("│ ", Token.FAINT),), (("│ ", Token.FAINT),)


def _line(line: str) -> Paragraph:
    if heading := HEADING.match(line):
        return Paragraph(((heading[1], Token.HEADING),))
    if item := ITEM.match(line):
        mark = f"{item[1]}{item[2] or '•'} "
        return Paragraph(inline(line[item.end() :]), ((mark, Token.BULLET),), ((" " * len(mark), Token.TEXT),))
    if quote := QUOTE.match(line):
        return Paragraph(((line[quote.end() :], Token.FAINT),), *_bar())
    if line.lstrip().startswith("|"):
        return Paragraph(((line, Token.TEXT),), words=False)
    return Paragraph(inline(line))


def inline(line: str) -> tuple[Span, ...]:
    """*line* with its code and bold words told apart."""
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
