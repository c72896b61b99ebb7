"""A Markdown table as rows: columns as wide as needed and possible, long cells on several rows."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kasmon.model.transcript.text import Margin, Span, TextLine, Token, cells, wrap

EDGE: Final = re.compile(r"(?<!\\)\|")
NARROWEST: Final = 6
"""If a column would get fewer cells than this, and needs more, the table stays unformatted."""
MOST_COLUMNS: Final = 40

TableRow = list[tuple[Span, ...]]
"""The cells of one row, as pieces of text."""
Inline = Callable[[str], tuple[Span, ...]]
"""Splits a cell into plain text, code and bold."""


class TableColumn(msgspec.Struct, frozen=True):
    """The layout of one column: its cells, and on which sides it is padded."""

    width: int
    left: bool = False
    right: bool = False


def draw_table(lines: Sequence[str], width: int, margin: Margin, inline: Inline) -> list[TextLine]:
    """Return the table in *lines* as rows of at most *width* cells; none if it does not fit."""
    heads, rows = _cells(lines[1]), split_rows(lines, inline)
    if len(rows[0]) != len(heads) or any(len(row) > len(heads) for row in rows):
        return []
    space = width - sum(len(text) for text, _ in margin) - 3 * (len(heads) - 1)
    columns = _columns(heads, rows, space) if len(heads) <= MOST_COLUMNS else []
    if not columns:
        return []
    rule = "─┼─".join("─" * column.width for column in columns)
    head, *others = [_row(row, columns, margin) for row in rows]
    return [*head, TextLine((*margin, (rule, Token.FAINT))), *(line for row in others for line in row)]


def split_rows(lines: Sequence[str], inline: Inline) -> list[TableRow]:
    """Return the rows of the table in *lines*, the head first."""
    head: TableRow = [((cell, Token.STRONG),) for cell in _cells(lines[0])]
    return [head, *([inline(cell) for cell in _cells(line)] for line in lines[2:])]


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if EDGE.search(inner[-1:]) and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in EDGE.split(inner)]


def _columns(heads: Sequence[str], rows: Sequence[TableRow], space: int) -> list[TableColumn]:
    """Return the columns, the widest of them cut until all fit into *space*; none if that is too little."""
    wanted = [
        max([1, *(sum(cells(text) for text, _ in row[at]) for row in rows if at < len(row))])
        for at in range(len(heads))
    ]
    widest = max(wanted)
    if sum(wanted) > space:
        low, high = 0, max(space, 0)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if sum(min(one, middle) for one in wanted) <= space else (low, middle - 1)
        widest = low
        if widest < NARROWEST:
            return []
    return [
        TableColumn(min(one, widest), left=cell.endswith(":"), right=cell.endswith(":") and cell.startswith(":"))
        for one, cell in zip(wanted, heads, strict=True)
    ]


def _row(row: TableRow, columns: Sequence[TableColumn], margin: Margin) -> list[TextLine]:
    """Return one row of the table, on as many lines as its longest cell needs."""
    nothing = (("", Token.TEXT),)
    stacks = [
        [_set(line.spans, column) for line in wrap(row[at] if at < len(row) else nothing, column.width)]
        for at, column in enumerate(columns)
    ]
    blanks = [((" " * column.width, Token.TEXT),) for column in columns]
    lines: list[TextLine] = []
    for level in range(max(len(stack) for stack in stacks)):
        spans: list[Span] = [*margin]
        for at, stack in enumerate(stacks):
            spans += [(" │ ", Token.FAINT)] if at else []
            spans += stack[level] if level < len(stack) else blanks[at]
        lines.append(TextLine(tuple(spans)))
    return lines


def _set(spans: tuple[Span, ...], column: TableColumn) -> tuple[Span, ...]:
    missing = max(0, column.width - sum(cells(text) for text, _ in spans))
    before = 0 if not column.left else missing // 2 if column.right else missing
    return ((" " * before, Token.TEXT), *spans, (" " * (missing - before), Token.TEXT))
