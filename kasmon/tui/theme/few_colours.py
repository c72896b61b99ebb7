"""Convert themes for terminals with 256 colours: each colour becomes one of those, and texts stay readable.

Rich alone would take the nearest colour for each one separately: a dark violet background becomes navy, and a quiet
text on the selected row is unreadable.
"""

from collections.abc import Set as AbstractSet
from colorsys import rgb_to_hsv
from functools import cache
from typing import Any, Final

import msgspec
from rich.color import Color, ColorSystem

from kasmon.tui.theme.theme import READABLE, DiffTints, StateColors, ThemeFile, contrast, mix_tints

GROUNDS: Final = ("background", "surface", "raised", "selected")
TINT_SHARES: Final = (0.25, 0.35)
"""How much of its colour the background of added text has, in a line and in a changed word; less would be grey."""
HUES_ALIKE: Final = 30
"""Hues that differ by less, in degrees, count as the same."""
TINT_CONTRAST: Final = 5.2
"""The least contrast of text on it."""
ADJUSTED_CONTRAST: Final = 6.0
"""What a colour is adjusted to where it is not readable; the terminal's nearest colour has a little less."""
URGENT: Final = ("asking", "crashed", "lost", "limited", "unsure", "working")
"""The states whose colours must resemble those of the theme most, the most urgent first."""


@cache
def reduce_colours(theme: ThemeFile) -> ThemeFile:
    """Return *theme* in colours that a terminal with 256 of them shows unchanged."""
    colors = theme.colors
    grounds: dict[str, str] = {}
    for name in GROUNDS:
        others = {grounds["background"]} if name == "selected" else set()
        grounds[name] = _nearest(getattr(colors, name), tuple(each for each in palette() if each not in others))
    backs = [grounds[name] for name in GROUNDS[:3]]
    reads = {each: min(contrast(back, each) for back in backs) for each in palette()}
    known: dict[str, str] = {}

    def readable_ones(colour: str) -> tuple[str, ...]:
        least = min(READABLE, min(contrast(colour, getattr(colors, name)) for name in GROUNDS[:3]))
        return tuple(each for each in palette() if reads[each] >= least)

    def text(colour: str) -> str:
        if colour not in known:
            known[colour] = _nearest(colour, readable_ones(colour))
        return known[colour]

    def texts(part: msgspec.Struct) -> Any:
        return type(part)(**{name: text(colour) for name, colour in msgspec.structs.asdict(part).items()})

    def states() -> StateColors:
        """Choose different colours for states that differ in the theme; the more urgent state chooses first."""
        taken: dict[str, str] = {}
        given = msgspec.structs.asdict(theme.states)
        for colour in dict.fromkeys(given[name] for name in (*URGENT, *given)):
            free = tuple(each for each in readable_ones(colour) if each not in taken.values())
            taken[colour] = _nearest(colour, free)
        return StateColors(**{name: taken[colour] for name, colour in given.items()})

    letters = {name: text(colour) for name, colour in msgspec.structs.asdict(colors).items() if name not in GROUNDS}
    letters["line"] = _nearest(colors.line, palette())
    return msgspec.structs.replace(
        theme,
        colors=type(colors)(**letters, **grounds),
        states=states(),
        diff=texts(theme.diff),
        says=texts(theme.says),
        contrast=max(theme.contrast, ADJUSTED_CONTRAST),
        tints=_find_tints(theme, letters["text"], {grounds["background"], grounds["selected"]}),
    )


def _find_tints(theme: ThemeFile, text: str, others: AbstractSet[str]) -> DiffTints:
    """Return backgrounds of the hue of *theme*'s, on which *text* is readable; none of *others*.

    Added and removed lines differ. There may be no other one for the words. Greys have no hue.
    """
    wanted = msgspec.structs.asdict(mix_tints(theme, *TINT_SHARES))
    readable_below = [each for each in palette() if contrast(text, each) >= TINT_CONTRAST and each not in others]
    found: dict[str, str] = {}
    for name, colour in wanted.items():
        hue, is_added = _hue(theme.diff.added if "added" in name else theme.diff.removed), "added" in name
        taken = {tint for other, tint in found.items() if ("added" in other) != is_added}
        apart = {each: _hue_distance(hue, _hue(each)) // HUES_ALIKE for each in readable_below if each not in taken}
        least = min(apart.values(), default=0)
        found[name] = _nearest(colour, tuple(each for each, distance in apart.items() if distance == least))
    return DiffTints(**found)


def _hue(colour: str) -> float | None:
    """Return the hue in degrees; None for a grey."""
    hue, saturation, _ = rgb_to_hsv(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))
    return hue * 360 if saturation else None


def _hue_distance(one: float | None, other: float | None) -> float:
    """Return the degrees between two hues, 0 to 180; more than that if one of two is a grey."""
    if one is None or other is None:
        return 0 if one == other else 360
    return min(abs(one - other), 360 - abs(one - other))


@cache
def palette() -> tuple[str, ...]:
    """Return those of the 256 colours that Rich leaves unchanged, without the sixteen that each terminal defines."""
    named = (Color.from_ansi(number).get_truecolor() for number in range(16, 256))
    colours = dict.fromkeys(f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in named)
    return tuple(colour for colour in colours if shown(colour, ColorSystem.EIGHT_BIT) == colour)


def shown(colour: str, system: ColorSystem) -> str:
    """Return what Rich makes of *colour* for a terminal of this kind."""
    red, green, blue = Color.parse(colour).downgrade(system).get_truecolor()
    return f"#{red:02x}{green:02x}{blue:02x}"


def _nearest(colour: str, among: tuple[str, ...]) -> str:
    return min(among, key=lambda each: _distance(colour, each)) if among else colour


def _distance(one: str, other: str) -> float:
    """Return how different two colours look ("redmean"); hue weighs more than brightness, as it carries meaning."""
    red, green, blue = (int(one[at : at + 2], 16) - int(other[at : at + 2], 16) for at in (1, 3, 5))
    mean = (int(one[1:3], 16) + int(other[1:3], 16)) / 2
    brightness = (2 + mean / 256) * red**2 + 4 * green**2 + (2 + (255 - mean) / 256) * blue**2
    return brightness + 4 * ((red - green) ** 2 + (green - blue) ** 2)
