"""Search in a transcript: which blocks contain a text, scanned in portions, and which of their rows show it.

Blocks are scanned from the end to the beginning, since recent text is searched most. Case is ignored.
"""

from bisect import bisect_left, insort
from functools import cache
from itertools import pairwise
from typing import Final, NewType

import msgspec

from kasmon.model.events import Event, PlanUpdated, ReceiptChanged, RequestOpened, ToolStarted, TurnEnded
from kasmon.model.transcript import run_blocks, tool_blocks
from kasmon.model.transcript.blocks import Block
from kasmon.model.transcript.layout import Transcript
from kasmon.model.transcript.rows import RowPosition, TranscriptRows
from kasmon.model.transcript.text import Span, TextLine, Token
from kasmon.sanitize import clean_block

CaseFoldedText = NewType("CaseFoldedText", str)
FIELDS: Final = ("prompt", "text", "tool", "output", "diff", "error", "why", "reason", "model")
MISSES: Final = 40
"""After this many blocks whose rows do not show the text that they contain, `above` and `below` return early."""


class TranscriptSearch:
    """The occurrences of *words* in *transcript*; follows additions."""

    def __init__(self, transcript: Transcript, query: str) -> None:
        self.query = CaseFoldedText(query.casefold())
        self.matches: list[int] = []
        """The indexes of the blocks that contain the text, as far as scanned."""
        self.tires = False
        """The last `above` or `below` did not check every block: it may be called again."""
        self._transcript = transcript
        self._low = self._high = len(transcript.blocks)
        self._followed = len(transcript.replaced)

    @property
    def is_done(self) -> bool:
        """Whether every block was scanned."""
        return self._low == 0 and self._high == len(self._transcript.blocks)

    def scan(self, blocks: int) -> None:
        """Scan up to *blocks* further blocks, and those that were added or changed since."""
        for at in self._transcript.replaced[self._followed :]:
            if self._low <= at < self._high:
                self._judge(at)
        self._followed = len(self._transcript.replaced)
        for at in range(self._high, len(self._transcript.blocks)):
            self._judge(at)
        self._high = len(self._transcript.blocks)
        low = max(0, self._low - blocks)
        self.matches[:0] = [at for at in range(low, self._low) if self._holds(at)]
        self._low = low

    def above(self, place: RowPosition, lines: TranscriptRows) -> RowPosition | None:
        """Return the nearest row above *place* that shows the text; None if there is none, or none known yet."""
        at = bisect_left(self.matches, place.block + 1)
        nearest = self.matches[max(0, at - MISSES) : at][::-1]
        for block in nearest:
            rows = [row for row in self._rows(block, lines) if (block, row) < (place.block, place.row)]
            if rows:
                return RowPosition(block, rows[-1])
        self.tires = at > MISSES
        return None

    def below(self, place: RowPosition, lines: TranscriptRows) -> RowPosition | None:
        """Return the nearest row below *place* that shows the text."""
        at = bisect_left(self.matches, place.block)
        for block in self.matches[at : at + MISSES]:
            rows = [row for row in self._rows(block, lines) if (block, row) > (place.block, place.row)]
            if rows:
                return RowPosition(block, rows[0])
        self.tires = at + MISSES < len(self.matches)
        return None

    def _judge(self, at: int) -> None:
        was, now = at in self.matches, self._holds(at)
        if now and not was:
            insort(self.matches, at)
        elif was and not now:
            self.matches.remove(at)

    def _holds(self, at: int) -> bool:
        return self.query in _text(self._transcript.blocks[at])

    def _rows(self, at: int, lines: TranscriptRows) -> list[int]:
        """Return the rows of block *at* that show the text; open its fold if that hides all of them.

        A block that shows it nowhere no longer counts as a match.
        """
        rows = _find_rows(lines.block(at), self.query)
        if not rows and at not in self._transcript.opened and self._transcript.toggle(at):
            rows = _find_rows(lines.block(at), self.query)
            if not rows:
                self._transcript.toggle(at)
                self._followed = len(self._transcript.replaced)  # there was no other change
        if not rows:
            self.matches.remove(at)
        return rows


def marked(line: TextLine, query: CaseFoldedText) -> TextLine:
    """Return *line* with the text highlighted; a line that case folding lengthens is unchanged."""
    text = line.text.casefold()
    if not query or query not in text or len(text) != len(line.text):
        return line
    spans: list[Span] = []
    start = 0
    for piece, token in line.spans:
        at = start
        while (found := text.find(query, max(0, at - len(query) + 1))) >= 0 and found < start + len(piece):
            first, last = max(found, at), min(found + len(query), start + len(piece))
            spans += [(line.text[at:first], token), (line.text[first:last], Token.FOUND)]
            at = last
            if found + len(query) > start + len(piece):
                break
        spans.append((line.text[at : start + len(piece)], token))
        start += len(piece)
    return msgspec.structs.replace(line, spans=tuple(span for span in spans if span[0]))


def _find_rows(rows: list[TextLine], query: CaseFoldedText) -> list[int]:
    """Return the rows that show the text, or its beginning if it continues in the next row."""
    texts = [row.text.casefold().rstrip() for row in rows]
    shown = [number for number, text in enumerate(texts) if query in text]
    if shown or len(query) < 2:
        return shown
    pairs = pairwise(texts)
    return [
        number
        for number, (text, below) in enumerate(pairs)
        if query in f"{text} {below.lstrip(' │')}" or query in f"{text}{below.lstrip(' │')}"
    ]


def _text(block: Block) -> str:
    then = () if isinstance(block.event, TurnEnded) else block.then  # with a turn's end: only for its duration
    return "\n".join(_searchable_text(event) for event in (block.event, *then)).casefold()


def _searchable_text(event: Event) -> str:
    if isinstance(event, RequestOpened):
        asked = event.request
        return "\n".join((asked.tool, asked.title, asked.shown, *asked.options))
    if isinstance(event, PlanUpdated):
        return "\n".join(item.text for item in event.items)
    if isinstance(event, ReceiptChanged):
        return f"{event.receipt.text}\n{event.receipt.reason}"
    title = run_blocks.code_of(event) or tool_blocks.title(event) if isinstance(event, ToolStarted) else ""
    text = "\n".join(
        [title, *(value for field in _fields(type(event)) if isinstance(value := getattr(event, field), str))]
    )
    return clean_block(text) if "\x1b" in text else text


@cache
def _fields(kind: type[Event]) -> tuple[str, ...]:
    return tuple(field for field in FIELDS if field in kind.__struct_fields__)
