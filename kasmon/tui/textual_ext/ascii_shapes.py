"""Replace symbols by ASCII characters of the same width, for a terminal without UTF-8."""

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
"""The partly filled end of a scrollbar's thumb becomes a blank."""
SIGNS: Final = {
    "…": "~", "·": "-", "•": "*", "–": "-", "—": "-", "×": "x", "‹": "<", "›": ">", "❯": ">", "▶": ">", "▸": ">",
    "▾": "v", "▼": "v", "▲": "^", "▴": "^", "↑": "^", "↓": "v", "←": "<", "→": ">", "↳": ">", "⎿": "|", "●": "*",
    "◉": "*", "◎": "o", "○": "o", "◌": ".", "◐": "%", "◑": "%", "◔": "%", "◆": "!", "◇": "#", "◈": "#", "✓": "+",
    "✔": "+", "✕": "x", "✗": "x", "☒": "x", "☐": "_", "□": "_", "▯": "=", "✻": "*", "⏸": "=", "⊠": "#", "⇄": "=",
    "↻": "r", "⟨": "<", "⟩": ">", "‘": "'", "’": "'", "“": '"', "”": '"', "✦": "F",
}  # fmt: skip
_TABLE: Final = str.maketrans(LINES | BLOCKS | SIGNS)


class AsciiFilter(LineFilter):
    """Replaces the symbols; letters of any script are unchanged."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isascii() for text, _, _ in segments):
            return segments
        return [Segment(text if text.isascii() else _drawn(text), style, control) for text, style, control in segments]


def _drawn(text: str) -> str:
    drawn = text.translate(_TABLE)
    return drawn if cell_len(drawn) == cell_len(text) else text
