"""Safety nets under the screen: no control sequence is drawn, and a crash report contains no values.

Foreign text is sanitized where it enters (`kasmon.sanitize`). These filters apply if that was forgotten.
"""

import logging
import re
import traceback
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.worker import WorkerFailed

_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]"
)
_TURNING: Final = frozenset("\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_log = logging.getLogger(__name__)


class ControlCharacterFilter(LineFilter):
    """Drops control characters, shows bidi controls as U+FFFD, and removes links, in every drawn segment."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        kept = segments
        for number, (text, style, control) in enumerate(segments):
            linked = style is not None and style.link is not None
            if control or linked or _UNSEEN.search(text):
                if kept is segments:
                    kept = list(segments)
                kept[number] = Segment(_UNSEEN.sub(_show_character, text), unlinked(style) if linked else style)
        return kept


class MonochromeFilter(LineFilter):
    """Draws only shapes, bold and reverse, with bright backgrounds reversed. For NO_COLOR."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, _plain(style), control) for text, style, control in segments]


def unlinked(style: Style | None) -> Style | None:
    return style.update_link(None) if style is not None else None


def trace_of(error: BaseException) -> str:
    """Return the trace of *error*, of a worker the worker's: files, lines and its class, without values or message."""
    if isinstance(error, WorkerFailed):
        error = error.error
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}" for frame in frames]
    return " < ".join([type(error).__name__, *reversed(lines)])


def log_crash(error: BaseException) -> None:
    """Write the trace of *error* to kasmon's own log."""
    _log.error("the dashboard crashed: %s", trace_of(error))


def _show_character(match: re.Match[str]) -> str:
    return "\ufffd" if match[0] in _TURNING else ""


def _plain(style: Style | None) -> Style | None:
    if style is None:
        return None
    background = style.bgcolor
    bright = background is not None and background.triplet is not None and sum(background.triplet) > 3 * 96
    reverse = (bool(style.reverse) != bright) or None
    kept = Style(bold=style.bold, italic=style.italic, underline=style.underline, strike=style.strike, reverse=reverse)
    return kept + Style(meta=style.meta) if style.meta else kept


ACROSS: Final = "─━┄┅┈┉╌╍═╴╶╸╺⎺⎻⎼⎽"
DOWN: Final = "│┃┆┇┊┋╎╏║╵╷╹╻▌▐▏▎▍▕"
_FRAMES: Final = {chr(each): "+" for each in range(0x2500, 0x2580)}
LINES: Final = _FRAMES | dict.fromkeys(ACROSS, "-") | dict.fromkeys(DOWN, "|")
BLOCKS: Final = {chr(each): " " for each in range(0x2581, 0x2588)} | dict.fromkeys("█▉▊▋▓▒░▀■▣▪", "#")
"""The partly filled end of a scrollbar's thumb becomes a blank."""
SIGNS: Final = {
    "…": "~", "·": "-", "•": "*", "–": "-", "—": "-", "×": "x", "‹": "<", "›": ">", "❯": ">", "▶": ">", "▸": ">",
    "▾": "v", "▼": "v", "▲": "^", "▴": "^", "↑": "^", "↓": "v", "←": "<", "→": ">", "↳": ">", "⎿": "|", "●": "*",
    "◉": "*", "◎": "o", "○": "o", "◌": ".", "◐": "%", "◑": "%", "◒": "%", "◔": "%", "◆": "!", "◇": "#", "◈": "#",
    "✓": "+", "✔": "+", "✕": "x", "✗": "x", "☒": "x", "☐": "_", "□": "_", "▯": "=", "✻": "*", "⏸": "=", "⊠": "#",
    "⇄": "=", "↻": "r", "⟨": "<", "⟩": ">", "‘": "'", "’": "'", "“": '"', "”": '"', "✦": "F",
    "»": "f",
}  # fmt: skip
_TABLE: Final = str.maketrans(LINES | BLOCKS | SIGNS)


class AsciiFilter(LineFilter):
    """Replaces the symbols; letters of any script are unchanged."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(text.isascii() for text, _, _ in segments):
            return segments
        return [
            Segment(text if text.isascii() else _draw_character(text), style, control)
            for text, style, control in segments
        ]


def _draw_character(text: str) -> str:
    drawn = text.translate(_TABLE)
    return drawn if cell_len(drawn) == cell_len(text) else text
