"""Convert themes for terminals with 256 colours: each colour becomes one of those, and texts stay readable.

Rich alone would take the nearest colour for each one separately: a dark violet background becomes navy, and a quiet
text on the selected row is unreadable.
"""

from functools import cache
from typing import Any, Final

import msgspec
from rich.color import Color, ColorSystem

from kasmon.tui.theme.theme import READABLE, StateColors, ThemeFile, contrast

GROUNDS: Final = ("background", "surface", "raised", "selected")
URGENT: Final = ("asking", "crashed", "lost", "limited", "unsure", "working")
"""The states whose colours must resemble those of the theme most, the most urgent first."""


@cache
def in_256_colours(theme: ThemeFile) -> ThemeFile:
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
    )


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
