"""The shape of each state, the same on the dashboard and in `kasmon ls`."""

from typing import Final

GLYPHS: Final = {
    "starting": ("◌", "."),
    "idle": ("○", "o"),
    "working": ("●", "*"),
    "asking": ("◆", "!"),
    "limited": ("◔", "L"),
    "paused": ("▯", "="),
    "standby": ("◐", "z"),
    "unsure": ("?", "?"),
    "lost": ("◇", "#"),
    "ended": ("✓", "+"),
    "crashed": ("✕", "x"),
}
"""State -> its shape, and its shape where the output is not UTF-8."""
