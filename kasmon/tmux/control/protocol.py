"""Parser for the output of `tmux -C`. Sans-IO: it reads no pipe and knows no command.

%begin TIME NUMBER FLAGS        starts an answer; %end or %error with the same three words ends it
%output PANE TEXT               output of a pane, with control characters and backslashes in octal
%extended-output PANE AGE : TEXT
%WORD ...                       any other notification
"""

import codecs
import warnings
from collections.abc import Iterator

import msgspec

LINE_BYTES = 64 * 1024 * 1024
"""Longer lines are truncated to this length."""


class OutputItem(msgspec.Struct, frozen=True):
    """A pane printed something."""

    pane: str
    data: bytes


class AnswerItem(msgspec.Struct, frozen=True):
    number: int
    is_requested: bool
    """Whether a command of this client caused it; otherwise tmux ran something by itself."""
    failed: bool
    lines: list[bytes]


class NoticeItem(msgspec.Struct, frozen=True):
    """A notification of tmux: `NoticeItem("window-close", b"@3")`."""

    kind: str
    rest: bytes


class BrokenItem(msgspec.Struct, frozen=True):
    """An end without a beginning: answers and requests no longer match.

    A pane may print the very line that ends the answer in which the pane is being captured. That answer then ends
    early, and its true end arrives later without a beginning.
    """

    line: bytes


Item = OutputItem | AnswerItem | NoticeItem | BrokenItem


class ControlParser:
    """Turns bytes into items. It never fails: input may be cut anywhere; what is no valid protocol line is skipped."""

    def __init__(self, line_bytes: int = LINE_BYTES) -> None:
        self._line_bytes = line_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._begin_fields: bytes | None = None
        self._lines: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Item]:
        first, *others = data.split(b"\n")
        if not others:
            self._append(first)
            return
        self._append(first)
        lines = [b"".join(self._pending), *others[:-1]]
        self._pending, self._pending_bytes = [], 0
        self._append(others[-1])
        for line in lines:
            if item := self._read(line):
                yield item

    def _append(self, piece: bytes) -> None:
        free_bytes = self._line_bytes - self._pending_bytes
        if piece and free_bytes > 0:
            self._pending.append(piece[:free_bytes])
            self._pending_bytes += min(len(piece), free_bytes)

    def _read(self, line: bytes) -> Item | None:
        if self._begin_fields is not None:
            word, _, fields = line.partition(b" ")
            if fields != self._begin_fields or word not in (b"%end", b"%error"):
                self._lines.append(line)
                return None
            self._begin_fields = None
            is_requested = fields.rpartition(b" ")[2] == b"1"
            return AnswerItem(_parse_number(fields) or 0, is_requested, word == b"%error", self._lines)
        if line.startswith(b"%output "):
            pane, _, text = line[8:].partition(b" ")
            return _parse_output(pane, text)
        if line.startswith(b"%extended-output "):
            head, _, text = line[17:].partition(b" : ")
            return _parse_output(head.partition(b" ")[0], text)
        if line.startswith(b"%begin "):
            if _parse_number(line[7:]) is not None:
                self._begin_fields, self._lines = line[7:], []
            return None
        if line.startswith((b"%end ", b"%error ")):
            return BrokenItem(line)
        if line.startswith(b"%"):
            kind, _, rest = line[1:].partition(b" ")
            return NoticeItem(kind.decode("ascii", "replace"), rest)
        return None


def unescape(text: bytes) -> bytes:
    """Return *text* of an %output with its octal escapes decoded; unchanged if it is not valid tmux output."""
    if b"\\" not in text:
        return text
    try:
        return codecs.escape_decode(text)[0]
    except (ValueError, DeprecationWarning):  # an invalid escape: must not warn, whatever the warning filters are
        return _unescape_quietly(text)


def _unescape_quietly(text: bytes) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return codecs.escape_decode(text)[0]
        except ValueError:
            return text


def _parse_output(pane: bytes, text: bytes) -> OutputItem | None:
    if not (pane.startswith(b"%") and pane[1:].isdigit()):
        return None
    return OutputItem(pane.decode("ascii"), unescape(text))


def _parse_number(fields: bytes) -> int | None:
    parts = fields.split(b" ")
    return int(parts[1]) if len(parts) == 3 and all(part.isdigit() for part in parts) else None
