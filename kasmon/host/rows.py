"""Captured rows as rows that stand alone: tmux writes a style only where it changes, from one row to the next too.

A row comes out as cleaned text in which each change of style is one whole SGR sequence: `ESC [ 0;1;31 m`, or `ESC [ m`
for the plain style, in which every row begins. Line drawing by charset becomes Unicode. Nothing else is left in it.
"""

import re
from collections.abc import Sequence
from typing import Final

from kasmon.clean import clean_line
from kasmon.host.cells import placed

CHANGE: Final = re.compile(r"\x1b\[([0-9;:]*)m|([\x0e\x0f])")
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
SHIFT_OUT: Final = "\x0e"
LINE_DRAWING: Final = str.maketrans("+,-.0`afghijklmnopqrstuvwxyz{|}~", "→←↑↓█◆▒°±▒␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
COLOURS: Final = {"38": "foreground", "48": "background", "58": "underline"}
KEPT_STYLES: Final = 4096


class Style:
    """How cells look. There is one object for each look, which knows the looks that follow it."""

    __slots__ = ("attributes", "background", "behind", "foreground", "is_drawing", "sgr", "underline")

    def __init__(
        self,
        attributes: tuple[str, ...] = (),
        foreground: str = "",
        background: str = "",
        underline: str = "",
        is_drawing: bool = False,
    ) -> None:
        self.attributes, self.is_drawing = attributes, is_drawing
        self.foreground, self.background, self.underline = foreground, background, underline
        said = ";".join(word for word in (*attributes, foreground, background, underline) if word)
        self.sgr = f"\x1b[0;{said}m" if said else "\x1b[m"
        """The sequence that makes this style out of any other."""
        self.behind: dict[str, Style] = {}
        """The styles that a change (the inside of an SGR sequence, or a shift) makes of this one."""

    def after(self, change: str) -> "Style":
        """This style after *change*."""
        known = self.behind.get(change)
        if known is None:
            known = self.behind[change] = _shared(*_changed(self, change))
            if len(self.behind) > KEPT_STYLES:
                self.behind.clear()
        return known


Look = tuple[tuple[str, ...], str, str, str, bool]
PLAIN: Final = Style()
_styles: dict[Look, Style] = {((), "", "", "", False): PLAIN}


class Sheet:
    """One screen's rows as last captured. Rows that did not change are not made again."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._made: list[tuple[bytes | None, Style, Style]] = []
        """Of each row: as captured, and the styles before and behind it."""

    def take(self, captured: Sequence[bytes], height: int, joins: bool = False) -> None:
        """The whole screen is *captured*, *height* rows of it; *joins* as for `cells.placed`."""
        rows: list[str] = []
        made: list[tuple[bytes | None, Style, Style]] = []
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

    def take_row(self, y: int, captured: bytes, joins: bool = False) -> None:
        """Row *y*, captured alone, is *captured*."""
        if y < len(self.rows):
            self.rows[y], _ = alone(captured.decode("utf-8", "replace"), joins=joins)
            self._made[y] = (None, PLAIN, PLAIN)


def alone(row: str, style: Style = PLAIN, joins: bool | None = None) -> tuple[str, Style]:
    """*row*, captured behind cells of *style*, standing alone; and the style behind it.

    Args:
        joins: fit it into its cells, as `cells.placed` does; None leaves its characters whole.
    """
    if style is PLAIN and row.isascii() and row.isprintable():
        return row, style
    pieces: list[str] = []
    written = PLAIN.sgr
    texts = CHANGE.split(row)
    for at in range(0, len(texts), 3):
        if text := texts[at]:
            if style.is_drawing:
                text = text.translate(LINE_DRAWING)
            if style.sgr is not written and style.sgr != written:
                written = style.sgr
                pieces.append(written)
            pieces.append(text if text.isascii() and text.isprintable() else _harmless(text, joins))
        if at + 2 < len(texts):
            style = style.after(texts[at + 1] if texts[at + 2] is None else texts[at + 2])
    return "".join(pieces), style


def _harmless(text: str, joins: bool | None) -> str:
    return clean_line(text) if joins is None or CONTROL.search(text) else placed(text, joins)


def _shared(*look: *Look) -> Style:
    if len(_styles) > KEPT_STYLES:
        _styles.clear()
        _styles[(), "", "", "", False] = PLAIN
        PLAIN.behind.clear()
    style = _styles.get(look)
    if style is None:
        style = _styles[look] = Style(*look)
    return style


def _changed(style: Style, change: str) -> Look:
    """What *change* makes of *style*."""
    colours = {name: getattr(style, name) for name in COLOURS.values()}
    attributes, is_drawing = style.attributes, style.is_drawing
    if change in ("\x0e", "\x0f"):
        return attributes, *colours.values(), change == SHIFT_OUT
    words = change.split(";")
    at = 0
    while at < len(words):
        word = words[at]
        base = word.partition(":")[0]
        number = int(base or 0)
        at += 1
        if base in COLOURS:
            length = {"5": 2, "2": 4}.get(words[at] if at < len(words) else "", 0) if word == base else 0
            colours[COLOURS[base]] = ";".join([word, *words[at : at + length]])
            at += length
        elif number == 0:
            attributes, colours = (), dict.fromkeys(colours, "")
        elif number <= 9 or number in (21, 53):
            attributes = tuple(sorted((*(known for known in attributes if known.partition(":")[0] != base), word)))
        elif 30 <= number <= 39 or 90 <= number <= 97:
            colours["foreground"] = "" if number == 39 else word
        elif 40 <= number <= 49 or 100 <= number <= 107:
            colours["background"] = "" if number == 49 else word
        elif number == 59:
            colours["underline"] = ""
    return attributes, colours["foreground"], colours["background"], colours["underline"], is_drawing
