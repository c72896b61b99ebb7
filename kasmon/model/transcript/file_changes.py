"""A diff split by file, and one file as rows: in one column, or old beside new. Pure."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from kasmon.model.transcript import diff
from kasmon.model.transcript.diff import HUNK, number_lines
from kasmon.model.transcript.text import BLANK, Span, TextLine, Token, cells, wrap

GAP: Final = " │ "
NARROW: Final = 100
"""Below this width, in cells, two columns are too narrow to read."""
Cell: TypeAlias = tuple[str, Span]
"""A line's number and its text; both empty if only the other side has a line."""


class FileChange(NamedTuple):
    name: str
    lines: tuple[str, ...]
    """From the first hunk on; a description if there is none (a binary file, a mode)."""
    added: int = 0
    removed: int = 0
    kind: str = ""
    """`new`, `deleted`, or empty."""


def split(whole: str) -> tuple[FileChange, ...]:
    """Return the files of *whole*, a diff from git, in its order."""
    files: list[list[str]] = []
    for line in whole.split("\n"):
        if line.startswith("diff --git "):
            files.append([line])
        elif files:
            files[-1].append(line)
    return tuple(_file(lines) for lines in files)


def unified(change: FileChange, width: int) -> list[TextLine]:
    """Return *change* in one column of *width* cells."""
    return diff.draw_diff(change.lines, width)


def beside(change: FileChange, width: int) -> list[TextLine]:
    """Return *change* in two columns, old left of new; *width* is that of both."""
    column = (width - len(GAP)) // 2
    digits = diff.digits(change.lines)
    rows: list[TextLine] = []
    for old, new in _pairs(change.lines):
        if old[1] == new[1] and old[1][1] in (Token.HUNK, Token.FAINT):
            rows += wrap([old[1]], width, words=False)
            continue
        left, right = (diff.row(*cell, digits, column) for cell in (old, new))
        for one, other in zip_longest(left, right, fillvalue=BLANK):
            rows.append(TextLine((*_padded(one, column), (GAP, Token.FAINT), *other.spans)))
    return rows


def _file(lines: Sequence[str]) -> FileChange:
    name, kind, at = _name(lines[0]), "", len(lines)
    for number, line in enumerate(lines):
        if HUNK.match(line):
            at = number
            break
        if line.startswith("new file"):
            kind = "new"
        elif line.startswith("deleted file"):
            kind = "deleted"
        elif line.startswith(("+++ b/", "--- a/")):
            name = line[6:].removesuffix("\t")
    body = tuple(lines[at:])
    while body and not body[-1]:
        body = body[:-1]
    signs = [span[1] for _, span in number_lines(body)]
    if not body:
        told = [line for line in lines[1:] if line.startswith(("Binary ", "old mode", "new mode", "rename "))]
        body = tuple(told) or ("It is empty.",)
    return FileChange(name, body, signs.count(Token.ADDED), signs.count(Token.REMOVED), kind)


def _name(head: str) -> str:
    """Return the file that `diff --git a/X b/X` names; if both differ, the new one."""
    return head.removeprefix("diff --git ").rpartition(" b/")[2] or head


def _pairs(lines: Sequence[str]) -> Iterator[tuple[Cell, Cell]]:
    """Yield the lines of both sides in pairs; removed lines are beside those that replaced them."""
    out: list[Cell] = []
    into: list[Cell] = []
    shift = 0
    for number, (text, token) in number_lines(lines):
        if hunk := HUNK.match(text) if token is Token.HUNK else None:
            shift = int(hunk[3]) - int(hunk[1])
        if token is Token.REMOVED:
            out.append((number, (text, token)))
        elif token is Token.ADDED:
            into.append((number, (text, token)))
        else:
            yield from zip_longest(out, into, fillvalue=_NOTHING)
            shift += len(into) - len(out)
            out, into = [], []
            was = str(int(number) - shift) if token is Token.SAME and number else number
            yield (was, (text, token)), (number, (text, token))
    yield from zip_longest(out, into, fillvalue=_NOTHING)


_NOTHING: Final[Cell] = ("", ("", Token.FAINT))


def _padded(line: TextLine, width: int) -> tuple[Span, ...]:
    used = sum(cells(text) for text, _ in line.spans)
    return (*line.spans, (" " * max(0, width - used), Token.TEXT))
