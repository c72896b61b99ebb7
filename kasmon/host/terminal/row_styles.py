"""Converts captured rows to independent rows: tmux writes a style only where it changes, also from row to row.

A row becomes sanitized text in which each change of style is one whole SGR sequence: `ESC [ 0;1;31 m`, or `ESC [ m`
for the plain style, in which every row begins. Line drawing by charset becomes Unicode. Nothing else is left in it.

tmux counts the width of a text in its own way, and a different count would shift the screen: before 3.4 it gives each
character its own cells (a heart with VS16 has one, a thumb with a skin colour four). Later versions, and the dashboard,
count what looks like one character as one: two cells each. So a pane's text is rewritten to have the same width for
all, with as much of each character as fits its cells.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from unicodedata import category, east_asian_width

from kasmon.host.rpc.frames import ReadTerminal
from kasmon.sanitize import Clean, clean_line
from kasmon.terminal_text.styles import CHANGE, PLAIN, TextStyle, read_row
from kasmon.tmux.control import requests as ask
from kasmon.tmux.control.requests import AnswerLines, TmuxRequest

LINK_OPENING: Final = "\x1b]8;"
_LINK: Final = re.compile(r"\x1b\]8;[^;\x07\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)")
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)


def wanted(pane: str, read: ReadTerminal) -> TmuxRequest[AnswerLines]:
    """Return the tmux request for the rows that `lines` needs to answer *read*: wrapped lines come joined."""
    start = -max(read.screen_and, 0) if read.screen_and is not None else "-"
    return ask.capture(pane, start=start, ansi=read.ansi, join=True)


def lines(captured: Sequence[bytes], read: ReadTerminal) -> tuple[str, ...]:
    """Return the lines that *read* requests, sanitized, from *captured*: the whole buffer or the requested part.

    The blank rows below the last text are not lines of the buffer.
    """
    rows = _with_style(captured) if read.ansi else [plain(row) for row in captured]
    while rows and not rows[-1]:
        rows.pop()
    if read.screen_and is not None:
        return tuple(rows)
    first, last = bounds(len(rows), read.start, read.end)
    return tuple(rows[first : last + 1])


def bounds(count: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return the first and the last index, of *count* lines; the range is empty if the last is the smaller one."""
    first = 0 if start is None else start if start >= 0 else max(count + start, 0)
    last = count - 1 if end is None else end if end >= 0 else count + end
    return first, min(last, count - 1)


def plain(row: bytes) -> Clean:
    """Return a captured *row* as sanitized text, without styles and without trailing blanks."""
    return Clean(clean_line(row.decode("utf-8", "replace")).rstrip())


def _with_style(captured: Sequence[bytes]) -> list[str]:
    rows: list[str] = []
    style = PLAIN
    for row in captured:
        text, style = alone(_with_addresses(row.decode("utf-8", "replace")), style)
        if not CHANGE.sub("", text).strip():
            rows.append("")
        else:
            rows.append(f"{text.rstrip()}\x1b[m" if "\x1b" in text else text.rstrip())
    return rows


def _with_addresses(line: str) -> str:
    """Return *line*, as captured, with the address of each link (OSC 8) in `<...>` behind its label, if they differ.

    A label may contain anything, also another address. tmux keeps links from 3.4 on. Only http and https are links; of
    all others only the label remains.
    """
    if LINK_OPENING not in line:
        return line
    return "".join(_with_address(text, address) for text, address in _links(line))


def _links(line: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of *line* with the addresses of their links; a wrapped label is joined."""
    first, *rest = _LINK.split(line)
    label, behind = first, ""
    for address, text in zip(rest[::2], rest[1::2], strict=True):
        if address == behind or not (address or CHANGE.sub("", text)):
            label += text
            continue
        yield label, behind
        label, behind = text, address
    yield label, behind


def _with_address(text: str, address: str) -> str:
    address = clean_line(address).replace(" ", "")
    if not _SCHEME.match(address):
        return text
    label = clean_line(CHANGE.sub("", text)).strip()
    return text if label == address else f"{text} <{address}>"


_UNPLAIN: Final = re.compile(
    "[^\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u0377\u037a-\u037f\u0384-\u03ff\u0400-\u0482\u048a-\u052f\u2010-\u2027"
    "\u2030-\u205e\u2070-\u209c\u20a0-\u20bf\u2100-\u218b\u2190-\u23fa\u2400-\u2426\u2440-\u244a\u2460-\u262f"
    "\u2638-\u2689\u2690-\u27ff\u2801-\u2b73\u2b76-\u2bff\u3001-\u3029\u3041-\u3096\u309d-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff9f\ufffd\U0001f300-\U0001f3fa\U0001f400-\U0001f6d7\U0001f7e0-\U0001f7eb"
    "\U0001f90c-\U0001f9ff\U00020000-\U0002a6df]"
)
"""Other characters join their neighbours, or are counted differently."""
_VARIATION: Final = frozenset(map(chr, range(0xFE00, 0xFE10)))
_EMOJI_STYLE, _JOINER, _HANGUL_FILLER = "\ufe0f", "\u200d", "\u3164"
_SIGNS: Final = frozenset("\xad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that have a cell."""
_SKINS: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_FLAGS: Final = frozenset(map(chr, range(0x1F1E6, 0x1F200)))


def placed(text: str, joins: bool = False) -> str:
    """Return a pane's *text*, sanitized and of the same width everywhere; *joins* for a tmux since 3.4."""
    if not _UNPLAIN.search(text):
        return text
    return "".join(_fit(cell, width) for cell, width in _with_flags(cells(text, joins)))


def cells(text: str, joins: bool = False) -> Iterator[tuple[str, int]]:
    """Yield each cell's text with its width in cells, from left to right."""
    cell, width = "", 0
    for character in text:
        own = _width(character)
        if cell and _belongs(cell, character, own, joins):
            cell += character
            if joins and (character == _EMOJI_STYLE or character in _SKINS or character in _FLAGS):
                width = 2
        elif own:
            if cell:
                yield cell, width
            cell, width = character, own
    if cell:
        yield cell, width


def _with_flags(cells: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield *cells* with the two halves of a flag as one of their summed width: one half alone is not visible."""
    half: tuple[str, int] | None = None
    for cell, width in cells:
        if half is not None and cell in _FLAGS:
            yield half[0] + cell, half[1] + width
            half = None
            continue
        if half is not None:
            yield half
        half = (cell, width) if cell in _FLAGS else None
        if half is None:
            yield cell, width
    if half is not None:
        yield half


def _belongs(cell: str, character: str, width: int, joins: bool) -> bool:
    if width == 0:
        return True
    if character.isascii():
        return False
    if cell[-1] == _JOINER:
        return True
    if not joins:
        return False
    return (character in _SKINS and not cell.isascii()) or (character in _FLAGS and len(cell) == 1 and cell in _FLAGS)


def _width(character: str) -> int:
    """Return how many cells tmux gives to *character* by itself: the C library's width."""
    code = ord(character)
    if 0x1160 <= code <= 0x11FF or 0xD7B0 <= code <= 0xD7FF:  # vowels and finals of Hangul
        return 0
    kind = category(character)
    if kind in ("Mn", "Me", "Zl", "Zp"):
        return 0
    if kind == "Cf":
        return int(character in _SIGNS)
    if 0x4DC0 <= code <= 0x4DFF or 0x3248 <= code <= 0x324F:
        return 2
    return 2 if east_asian_width(character) in "WF" else 1


@lru_cache(maxsize=4096)
def _fit(cell: str, width: int) -> str:
    """Return as much of *cell* as has exactly *width* cells everywhere; U+FFFD if nothing has."""
    from wcwidth import wcswidth  # only for unusual characters

    if cell[0] in _SKINS or cell[0] == _HANGUL_FILLER:
        return " " * width
    seen = "".join(character for character in cell if category(character) != "Cf" and character not in _VARIATION)
    for shown in (clean_line(cell), clean_line(seen), clean_line(cell[0])):
        if wcswidth(shown) == width:
            return shown
    shown = clean_line(cell)
    return shown + " " * (width - wcswidth(shown)) if 0 < wcswidth(shown) < width else "\ufffd".ljust(width)


CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class StyledRows:
    """One screen's rows as last captured. Unchanged rows are not converted again."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._made: list[tuple[bytes | None, TextStyle, TextStyle]] = []
        """Of each row: as captured, and the styles before and behind it."""

    def convert(self, captured: Sequence[bytes], height: int, joins: bool = False) -> None:
        """Convert the whole screen *captured*, *height* rows of it; *joins* as for `cell_widths.placed`."""
        rows: list[str] = []
        made: list[tuple[bytes | None, TextStyle, TextStyle]] = []
        style = PLAIN
        for y in range(height):
            raw = captured[y] if y < len(captured) else b""
            known = self._made[y] if y < len(self._made) else None
            if known is not None and known[0] == raw and known[1] is style:
                row, behind = self.rows[y], known[2]
            else:
                row, behind = alone(raw.decode("utf-8", "replace"), style, joins)
            rows.append(row)
            made.append((raw, style, behind))
            style = behind
        self.rows, self._made = rows, made

    def convert_row(self, y: int, captured: bytes, joins: bool = False) -> None:
        """Convert row *y*, captured alone."""
        if y < len(self.rows):
            self.rows[y], _ = alone(captured.decode("utf-8", "replace"), joins=joins)
            self._made[y] = (None, PLAIN, PLAIN)


def alone(row: str, style: TextStyle = PLAIN, joins: bool | None = None) -> tuple[str, TextStyle]:
    """Return *row*, captured behind cells of *style*, as an independent row; and the style behind it.

    Args:
        joins: fit it into its cells, as `cell_widths.placed` does; None leaves its characters whole.
    """
    if style is PLAIN and row.isascii() and row.isprintable():
        return row, style
    pieces: list[str] = []
    written = PLAIN.sgr
    texts, style = read_row(row, style)
    for text, look in texts:
        if look.sgr != written:
            written = look.sgr
            pieces.append(written)
        pieces.append(text if text.isascii() and text.isprintable() else _harmless(text, joins))
    return "".join(pieces), style


def _harmless(text: str, joins: bool | None) -> str:
    return clean_line(text) if joins is None or CONTROL.search(text) else placed(text, joins)
