"""Where the terminal is not UTF-8, each shape that is drawn is one that every terminal has, as wide as it was."""

from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

ACROSS: Final = "─━┄┅┈┉╌╍═╴╶╸╺⎺⎻⎼⎽"
DOWN: Final = "│┃┆┇┊┋╎╏║╵╷╹╻▌▐▏▎▍▕"
_FRAMES: Final = {chr(each): "+" for each in range(0x2500, 0x2580)}
LINES: Final = _FRAMES | dict.fromkeys(ACROSS, "-") | dict.fromkeys(DOWN, "|")
BLOCKS: Final = {chr(each): " " for each in range(0x2581, 0x2588)} | dict.fromkeys("█▉▊▋▓▒░▀■▣▪", "#")
"""An end of a scrollbar's thumb is less than a cell: none at all."""
SIGNS: Final = {
    "…": "~", "·": "-", "•": "*", "–": "-", "—": "-", "×": "x", "‹": "<", "›": ">", "❯": ">", "▶": ">", "▸": ">",
    "▾": "v", "▼": "v", "▲": "^", "▴": "^", "↑": "^", "↓": "v", "←": "<", "→": ">", "↳": ">", "⎿": "|", "●": "*",
    "◉": "*", "◎": "o", "○": "o", "◌": ".", "◐": "%", "◑": "%", "◔": "%", "◆": "!", "◇": "#", "◈": "#", "✓": "+",
    "✔": "+", "✕": "x", "✗": "x", "☒": "x", "☐": "_", "□": "_", "▯": "=", "✻": "*", "⏸": "=", "⊠": "#", "⇄": "=",
    "↻": "r", "⟨": "<", "⟩": ">", "‘": "'", "’": "'", "“": '"', "”": '"', "✦": "F",
}  # fmt: skip
_TABLE: Final = str.maketrans(LINES | BLOCKS | SIGNS)


class AsciiFilter(LineFilter):
    """Draws those; letters of any script stay what they are."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isascii() for text, _, _ in segments):
            return segments
        return [Segment(text if text.isascii() else _drawn(text), style, control) for text, style, control in segments]


def _drawn(text: str) -> str:
    drawn = text.translate(_TABLE)
    return drawn if cell_len(drawn) == cell_len(text) else text
