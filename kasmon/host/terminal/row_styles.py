"""Converts captured rows to independent rows: tmux writes a style only where it changes, also from row to row.

A row becomes sanitized text in which each change of style is one whole SGR sequence: `ESC [ 0;1;31 m`, or `ESC [ m`
for the plain style, in which every row begins. Line drawing by charset becomes Unicode. Nothing else is left in it.
"""

import re
from collections.abc import Sequence
from typing import Final

from kasmon.host.terminal.cell_widths import placed
from kasmon.sanitize import clean_line
from kasmon.terminal_text.styles import PLAIN, TextStyle, read_row

CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class StyledRows:
    """One screen's rows as last captured. Unchanged rows are not converted again."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._made: list[tuple[bytes | None, TextStyle, TextStyle]] = []
        """Of each row: as captured, and the styles before and behind it."""

    def take(self, captured: Sequence[bytes], height: int, joins: bool = False) -> None:
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

    def take_row(self, y: int, captured: bytes, joins: bool = False) -> None:
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
