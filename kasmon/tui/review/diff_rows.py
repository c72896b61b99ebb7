"""One file's diff as rows of cells: all are counted, and each is built when it is shown. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat, zip_longest
from typing import Final, Literal, NamedTuple

import msgspec

from kasmon.model.review.hunks import DiffLine, HunkedFile
from kasmon.model.review.line_pairs import LinePairs, Range, compare_words
from kasmon.model.transcript.syntax import LANGUAGES, highlight
from kasmon.model.transcript.text import TAB, Token, cells, wrap
from kasmon.tui.theme.look import TOKENS, Background

COLUMN_GAP: Final = " │ "
NARROW: Final = 100
"""Below this width, in cells, two columns are too narrow to read."""
BLOCK_LINES: Final = 40
"""So many lines are highlighted together, when one of them is shown."""
LEAST_CELLS: Final = 4
MOST_CHARACTERS: Final = 10_000
"""So many characters of a line are shown."""
CACHED: Final = 400
SUFFIXES: Final = {
    "h": "c",
    "hpp": "cpp",
    "cc": "cpp",
    "cxx": "cpp",
    "mjs": "javascript",
    "htm": "html",
    "pyi": "python",
}
ROLES: Final = {Token.ADDED: "diff-added", Token.REMOVED: "diff-removed", Token.HUNK: "diff-hunk", Token.FAINT: "faint"}
BACKGROUNDS: Final[Mapping[Token, Background]] = {Token.ADDED: "added", Token.REMOVED: "removed"}
WORD_BACKGROUNDS: Final[Mapping[Token, Background]] = {Token.ADDED: "added-words", Token.REMOVED: "removed-words"}


class StyledText(NamedTuple):
    """Text of one style."""

    text: str
    role: str
    ground: Background = "background"


Row = Sequence[StyledText]


class Entry(NamedTuple):
    """What the cursor can be on: a line, or a pair of lines in two columns; a hunk's header; a comment."""

    kind: Literal["line", "hunk", "comment"]
    old: int | None
    """The index of the line; in two columns, of that on the left."""
    new: int | None
    comment: str = ""
    """The id of the comment below that line."""

    @property
    def line(self) -> int:
        """The index of its line; in two columns, of the new one if there is one."""
        return self.new if self.new is not None else self.old or 0


_NEW_ENTRY: Final = partial(tuple.__new__, Entry)
"""Creates an entry from its fields, without a call of Python code: there are thousands."""


class ShownComment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment as drawn below the last of its lines."""

    id: str
    text: str
    note: str = ""
    """Its state, in a few words."""


class LineColours:
    """The syntax colours of a file's lines, computed block by block when one is shown."""

    def __init__(self, file: HunkedFile, name: str) -> None:
        self._file = file
        suffix = name.rpartition("/")[2].rpartition(".")[2].lower()
        language = SUFFIXES.get(suffix, suffix)
        self.language = language if language in LANGUAGES else ""
        """The name of its language; empty if unknown."""
        self.is_ready = not self.language
        """Whether its lexer is loaded; until then, text has no colours."""
        self._spans: dict[int, tuple[tuple[str, Token], ...]] = {}

    def load(self) -> None:
        """Load the lexer. Blocks; use a thread."""
        highlight([""], self.language)
        self.is_ready = True

    def of(self, at: int) -> Sequence[tuple[str, Token]]:
        """Return the text of line *at*, without its sign and with spaces for tabs, as spans."""
        body = _body(self._file.lines[at])
        if not self.language or not self.is_ready or self._file.lines[at].token in (Token.HUNK, Token.FAINT):
            return ((body, Token.TEXT),)
        if at not in self._spans:
            self._highlight_block(at)
        return self._spans[at]

    def _highlight_block(self, at: int) -> None:
        other = Token.ADDED if self._file.lines[at].token is Token.REMOVED else Token.REMOVED
        hunk = self._file.hunks[self._file.hunk_at(at)]
        first = hunk.start + (at - hunk.start) // BLOCK_LINES * BLOCK_LINES
        numbers = range(first, min(first + BLOCK_LINES, hunk.end))
        side = [n for n in numbers if self._file.lines[n].token not in (other, Token.HUNK, Token.FAINT)]
        found = highlight([_body(self._file.lines[n]) for n in side], self.language)
        for number, spans in zip(side, found, strict=True):
            if number == at or number not in self._spans:
                self._spans[number] = spans


class DiffRows:
    """The rows of one file for a width in cells; positions are counted from 0."""

    def __init__(
        self,
        file: HunkedFile,
        colours: LineColours,
        pairs: LinePairs,
        width: int,
        *,
        two_columns: bool = False,
        folded: frozenset[int] = frozenset(),
        comments: Mapping[int, Sequence[ShownComment]] | None = None,
        query: str = "",
        unfold_key: str = "",
    ) -> None:
        """
        Args:
            folded: the indexes of hunks.
            comments: they are below the lines with these indexes.
            query: marked where they occur.
        """
        self.file, self.width, self.two_columns, self.folded = file, width, two_columns, folded
        self._pairs = pairs
        self._colours, self._words, self._unfold_key = colours, query.casefold(), unfold_key
        self._comments = {each.id: each for listed in (comments or {}).values() for each in listed}
        ends = [line for hunk in file.hunks for line in file.lines[max(hunk.start, hunk.end - 4) : hunk.end]]
        self._digits = len(str(max((max(line.old, line.new) for line in ends), default=1)))
        self._column = (width - len(COLUMN_GAP)) // 2 if two_columns else width
        self._text_cells = max(LEAST_CELLS, self._column - self._digits - 2)
        self.entries = list(self._entries(comments or {}))
        self.starts = [0, *accumulate(self._heights())]
        self._positions: dict[int, int] = {}
        """The index of a line -> that of its entry; filled when it is needed."""
        self._changed: dict[int, tuple[Range, ...]] = {}
        self._drawn: dict[int, list[Row]] = {}

    @property
    def count(self) -> int:
        return self.starts[-1]

    def entry_at(self, row: int) -> int:
        return max(0, min(bisect_right(self.starts, row) - 1, len(self.entries) - 1))

    def entry_of(self, line: int) -> int:
        """Return the index of the entry with *line*, or of the header of its folded hunk."""
        if not self.two_columns:  # the lines of the entries are in order
            at = bisect_left(self.entries, line, key=lambda entry: entry.line)
            if at < len(self.entries) and self.entries[at].line == line:
                return at
            return max(0, at - 1)
        if not self._positions:
            for at, entry in enumerate(self.entries):
                if entry.kind != "comment":
                    for each in (entry.old, entry.new):
                        if each is not None:
                            self._positions.setdefault(each, at)
        if line in self._positions or not self.file.hunks:
            return self._positions.get(line, 0)
        return self._positions.get(self.file.hunks[self.file.hunk_at(line)].start, 0)

    def row(self, number: int) -> Row:
        at = self.entry_at(number)
        if at not in self._drawn:
            if len(self._drawn) > CACHED:
                self._drawn.clear()
            self._drawn[at] = list(self._draw(self.entries[at]))
        rows = self._drawn[at]
        inner = number - self.starts[at]
        return rows[inner] if inner < len(rows) else ()

    # Layout.

    def _entries(self, comments: Mapping[int, Sequence[ShownComment]]) -> Iterator[Entry]:
        for at, hunk in enumerate(self.file.hunks):
            first = hunk.start
            if self.file.lines and self.file.lines[first].token is Token.HUNK:
                yield Entry("hunk", first, first)
                first += 1
            if at in self.folded:
                continue
            if not self.two_columns and not comments:
                numbers = range(first, hunk.end)
                yield from map(_NEW_ENTRY, zip(repeat("line"), numbers, numbers, repeat("")))
                continue
            numbers = range(first, hunk.end)
            for old, new in self._pairs.in_hunk(at) if self.two_columns else zip(numbers, numbers, strict=True):
                yield Entry("line", old, new)
                if comments:
                    for line in dict.fromkeys((old, new)):
                        for comment in comments.get(line, ()) if line is not None else ():
                            yield Entry("comment", line, line, comment.id)

    def _heights(self) -> Iterator[int]:
        """Yield the rows of each entry. This loop runs for each line of a file, so it is written out."""
        lines, space = self.file.lines, self._text_cells
        for kind, old, new, comment in self.entries:
            if kind == "hunk":
                yield 1
            elif kind == "comment":
                yield len(self._comment_rows(comment))
            elif old == new and new is not None:
                text = lines[new].text
                short = len(text) <= space and text.isascii() and "\t" not in text
                yield 1 if short else self._line_height(new)
            else:
                yield max(self._line_height(line) for line in (old, new) if line is not None)

    def _line_height(self, at: int) -> int:
        line, token = self.file.lines[at].text, self.file.lines[at].token
        space = self.width if self.two_columns and token is Token.FAINT else self._text_cells
        if line.isascii() and "\t" not in line and len(line) <= MOST_CHARACTERS:
            return max(1, -(-(len(line) - (token is not Token.FAINT)) // space))
        return len(_cut_points(_body(self.file.lines[at]), space))

    # Drawing.

    def _draw(self, entry: Entry) -> Iterator[Row]:
        if entry.kind == "hunk":
            yield self._hunk_row(entry)
        elif entry.kind == "comment":
            yield from self._comment_rows(entry.comment)
        elif not self.two_columns:
            yield from self._line_rows(entry.line)
        elif entry.old == entry.new and self.file.lines[entry.line].token is Token.FAINT:
            body = _body(self.file.lines[entry.line])
            for start, end in _cut_points(body, self.width):
                yield [StyledText(body[start:end], "faint")]
        else:
            left = self._line_rows(entry.old, old_side=True) if entry.old is not None else []
            right = self._line_rows(entry.new) if entry.new is not None else []
            for one, other in zip_longest(left, right, fillvalue=()):
                yield [*_pad(one, self._column), StyledText(COLUMN_GAP, "faint"), *_pad(other, self._column)]

    def _hunk_row(self, entry: Entry) -> Row:
        at = self.file.hunk_at(entry.line)
        hunk = self.file.hunks[at]
        lead = " " * (self._digits + 1)
        row = [StyledText(lead + self.file.lines[entry.line].text, "diff-hunk")]
        if at in self.folded:
            key = f" · {self._unfold_key} unfolds" if self._unfold_key else ""
            row.append(StyledText(f"  {hunk.end - hunk.start - 1:,} lines folded{key}", "warn"))
        return row

    def _comment_rows(self, comment: str) -> list[Row]:
        shown = self._comments[comment]
        lead = StyledText(" " * (self._digits + 1) + "┃ ", "accent")
        role = "soft" if shown.note.startswith("resolved") else "text"
        rows: list[Row] = []
        for paragraph in shown.text.split("\n"):
            wrapped = wrap([(paragraph, Token.TEXT)], max(LEAST_CELLS, self.width - len(lead.text)))
            rows += [[lead, StyledText(row.text, role, "surface")] for row in wrapped]
        note = f"{shown.id} · {shown.note}" if shown.note else shown.id
        return [*rows, [lead, StyledText(note[: max(0, self.width - len(lead.text))], "faint", "surface")]]

    def _line_rows(self, at: int, *, old_side: bool = False) -> list[Row]:
        line = self.file.lines[at]
        background = BACKGROUNDS.get(line.token, "background")
        number = line.old if old_side or line.token is Token.REMOVED else line.new
        role = ROLES.get(line.token, "faint")
        body = _body(line)
        pieces = list(self._apply_styles(at, body, background))
        rows: list[Row] = []
        for start, end in _cut_points(body, self._text_cells):
            digits = f"{number or '':>{self._digits}} " if not start else " " * (self._digits + 1)
            sign = line.text[:1] if not start and line.token is not Token.FAINT else " "
            gutter = [StyledText(digits, role, background), StyledText(sign or " ", role, background)]
            rows.append([*gutter, *_slice(pieces, start, end)])
        return rows

    def _apply_styles(self, at: int, body: str, background: Background) -> Iterator[StyledText]:
        """Yield *body* in pieces: by its syntax, its changed words, and the words that are searched."""
        line = self.file.lines[at]
        changed, found = self._changed_ranges(at), _occurrences(body, self._words)
        plain = "faint" if line.token is Token.FAINT else "text"
        start = 0
        edges = sorted({edge for each in (*changed, *found) for edge in each})
        for text, token in self._colours.of(at):
            end = start + len(text)
            cuts = [start, *(edge for edge in edges if start < edge < end), end]
            for first, last in pairwise(cuts):
                role = plain if token in (Token.TEXT, Token.CODE_BLOCK) else TOKENS[token]
                if any(low <= first < high for low, high in found):
                    yield StyledText(body[first:last], TOKENS[Token.FOUND])
                elif any(low <= first < high for low, high in changed):
                    bold = role if ".bold" in role else f"{role}.bold"
                    yield StyledText(
                        body[first:last], f"{bold}.underline", WORD_BACKGROUNDS.get(line.token, background)
                    )
                else:
                    yield StyledText(body[first:last], role, background)
            start = end

    def _changed_ranges(self, at: int) -> tuple[Range, ...]:
        if (partner := self._pairs.partner(at)) is None:
            return ()
        if at not in self._changed:
            old, new = sorted((at, partner))
            ranges = compare_words(_body(self.file.lines[old]), _body(self.file.lines[new]))
            self._changed[old], self._changed[new] = ranges
        return self._changed[at]


def _body(line: DiffLine) -> str:
    """Return the text of *line* without its sign, and with spaces for tabs; of a very long line, its beginning."""
    text = line.text if line.token is Token.FAINT else line.text[1:]
    if (more := len(text) - MOST_CHARACTERS) > 0:
        text = f"{text[:MOST_CHARACTERS]}… {more:,} more characters"
    return text.expandtabs(TAB) if "\t" in text else text


def _cut_points(text: str, space: int) -> list[Range]:
    """Return the start and end of each row of *text*; one empty row for no text."""
    if text.isascii():
        return [(at, min(at + space, len(text))) for at in range(0, len(text), space)] or [(0, 0)]
    ranges: list[Range] = []
    at = 0
    for row in wrap([(text, Token.TEXT)], max(space, LEAST_CELLS), words=False):
        ranges.append((at, at + len(row.text)))
        at += len(row.text)
    return ranges or [(0, 0)]


def _slice(pieces: Sequence[StyledText], start: int, end: int) -> Iterator[StyledText]:
    at = 0
    for piece in pieces:
        if at + len(piece.text) > start and at < end:
            yield piece._replace(text=piece.text[max(0, start - at) : end - at])
        at += len(piece.text)


def _pad(row: Row, width: int) -> Iterator[StyledText]:
    yield from row
    background: Background = row[0].ground if row else "background"
    if (missing := width - sum(cells(piece.text) for piece in row)) > 0:
        yield StyledText(" " * missing, "text", background)


def _occurrences(text: str, query: str) -> tuple[Range, ...]:
    """Return the ranges in which *query*, which is folded to lower case, occurs in *text*."""
    if not query:
        return ()
    folded, found, at = text.casefold(), list[Range](), -len(query)
    if len(folded) != len(text):
        return ()
    while (at := folded.find(query, at + len(query))) >= 0:
        found.append((at, at + len(query)))
    return tuple(found)
