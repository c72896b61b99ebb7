"""Themes: parse a TOML file to colours. The schema is strict; an invalid file changes nothing.

Shipped ones are in the top-level `themes/`, the user's own in the config folder's `themes/`. The file's name without
`.toml` is the theme's name; a user's theme replaces a shipped one of its name.
"""

import re
from functools import cache
from typing import Annotated, Final, get_type_hints

import msgspec
from rich.terminal_theme import TerminalTheme
from textual.theme import Theme

from kasmon.config.parser import line_of
from kasmon.errors import ConfigError
from kasmon.toml_struct import parse_table

LIGHT: Final = "rose-pine-dawn"
"""Used on a light terminal if no theme is set."""
DEFAULT: Final = "rose-pine-moon"
"""Not by `importlib.resources`: it imports `zipfile` and more into every dashboard."""
READABLE: Final = 4.5
"""The minimum contrast for readable text, by the WCAG."""
LINE_SHARE: Final = 0.12
WORDS_SHARE: Final = 0.32
"""How much of the colour of added text is in the background of an added line, and of a changed word."""
PLAIN: Final = "monochrome"
"""Used if NO_COLOR is set: shapes, bold and reverse carry all information."""

SIXTEEN: Final = "sixteen"
"""Used if the terminal has sixteen colours: any other theme would become shades of grey."""

Colour = Annotated[str, msgspec.Meta(pattern=r"\A#[0-9a-fA-F]{6}\Z", description="a colour such as #9ccfd8")]


class ThemeColors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backgrounds from back to front, texts from loud to quiet, and five meanings."""

    background: Colour
    surface: Colour
    """Panels and bars."""
    raised: Colour
    """Dialogs, and fields in them."""
    selected: Colour
    """The row under the cursor."""
    line: Colour
    """Rules and borders; never text."""
    text: Colour
    soft: Colour
    faint: Colour
    accent: Colour
    info: Colour
    good: Colour
    warn: Colour
    bad: Colour


class StateColors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The colour of each state; a crash differs from another end."""

    starting: Colour
    idle: Colour
    working: Colour
    asking: Colour
    limited: Colour
    paused: Colour
    standby: Colour
    unsure: Colour
    lost: Colour
    ended: Colour
    crashed: Colour


class DiffColors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    added: Colour
    removed: Colour
    hunk: Colour


class DiffTints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backgrounds of added and removed lines, and of the words that changed in them."""

    added: Colour
    removed: Colour
    added_words: Colour
    removed_words: Colour


class SpeakerColors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kinds of text in a transcript."""

    person: Colour
    agent: Colour
    thought: Colour
    tool: Colour
    code: Colour
    heading: Colour


class TerminalColors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sixteen colours for a terminal agent's screen: eight, and their bright variants."""

    black: Colour
    red: Colour
    green: Colour
    yellow: Colour
    blue: Colour
    magenta: Colour
    cyan: Colour
    white: Colour
    bright_black: Colour
    bright_red: Colour
    bright_green: Colour
    bright_yellow: Colour
    bright_blue: Colour
    bright_magenta: Colour
    bright_cyan: Colour
    bright_white: Colour


class ThemeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    dark: bool = True
    contrast: Annotated[float, msgspec.Meta(ge=1, le=21)] = 4.5
    """The minimum contrast of every text on the selected row, by the WCAG's formula."""
    colors: ThemeColors
    states: StateColors
    diff: DiffColors
    says: SpeakerColors
    tints: DiffTints | None = None
    """Mixed from the background and the colours of `diff` if missing."""
    terminal: TerminalColors | None = None
    """Derived from the colours above if missing."""


def parse(text: str, file: str) -> ThemeFile:
    """Return the theme that *text* describes. Raises `ConfigError` with the line, the key and what is allowed there."""
    table = parse_table(text, file)
    try:
        return msgspec.convert(table, ThemeFile)
    except msgspec.ValidationError as error:
        raise _locate_error(text, file, str(error)) from error


def textual_theme(name: str, theme: ThemeFile) -> Theme:
    """Return *theme* for Textual; all of its colours are variables of the stylesheet."""
    colors = theme.colors
    return Theme(
        name=name,
        primary=colors.accent,
        secondary=colors.info,
        accent=colors.accent,
        success=colors.good,
        warning=colors.warn,
        error=colors.bad,
        foreground=colors.text,
        background=colors.background,
        surface=colors.surface,
        panel=colors.raised,
        dark=theme.dark,
        variables=variables(theme),
    )


def variables(theme: ThemeFile) -> dict[str, str]:
    """Return the stylesheet's variables under *theme*: its own names, and Textual's if its default would differ."""
    colors = theme.colors
    own = {f"k-{name}": value for name, value in msgspec.structs.asdict(colors).items()}
    for group, values in (("state", theme.states), ("diff", theme.diff), ("says", theme.says)):
        own |= {f"{group}-{name}": value for name, value in msgspec.structs.asdict(values).items()}
    return own | {
        "state-finished": colors.info,
        "state-hibernated": theme.states.standby,
        "text": colors.text,
        "text-muted": colors.soft,
        "text-disabled": colors.faint,
        "border": colors.accent,
        "border-blurred": colors.line,
        "scrollbar": colors.line,
        "scrollbar-hover": colors.faint,
        "scrollbar-active": colors.accent,
        "scrollbar-background": colors.background,
        "scrollbar-background-hover": colors.background,
        "scrollbar-background-active": colors.background,
        "scrollbar-corner-color": colors.background,
        "block-cursor-background": colors.selected,
        "block-cursor-foreground": readable(colors.text, colors.selected, theme.contrast),
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": _calm(colors),
        "block-hover-background": colors.surface,
        "input-cursor-background": colors.text,
        "input-cursor-foreground": colors.background,
        "input-selection-background": colors.selected,
        "input-selection-foreground": readable(colors.text, colors.selected, theme.contrast),
        "link-color": colors.info,
    }


def diff_backgrounds(theme: ThemeFile) -> dict[str, str]:
    """Return the backgrounds below the added and removed lines of a diff, and below the words that changed in them."""
    tints = theme.tints or mix_tints(theme, LINE_SHARE, WORDS_SHARE)
    return {f"k-{name.replace('_', '-')}": colour for name, colour in msgspec.structs.asdict(tints).items()}


def mix_tints(theme: ThemeFile, lines: float, words: float) -> DiffTints:
    """Return the background mixed with these shares, 0 to 1, of the colours of added and removed text."""
    back, diff = theme.colors.background, theme.diff
    return DiffTints(
        added=mix(back, diff.added, lines),
        removed=mix(back, diff.removed, lines),
        added_words=mix(back, diff.added, words),
        removed_words=mix(back, diff.removed, words),
    )


def _calm(colors: ThemeColors) -> str:
    """Return a background for a chosen line on which quiet text is readable."""
    return (
        colors.selected if contrast(colors.soft, colors.selected) >= READABLE else mix(colors.raised, colors.text, 0.2)
    )


def terminal_theme(theme: ThemeFile) -> TerminalTheme:
    """Return the sixteen terminal colours under *theme*."""
    colors = theme.colors
    if theme.terminal is None:
        plain = (colors.line, colors.bad, colors.good, colors.warn, theme.states.starting, colors.accent, colors.info)
        eight = (*plain, colors.soft, colors.faint, *plain[1:], colors.text)
    else:
        eight = msgspec.structs.astuple(theme.terminal)
    shades = [_channels(colour) for colour in eight]
    return TerminalTheme(_channels(colors.background), _channels(colors.text), shades[:8], shades[8:])


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21, by the WCAG's formula."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@cache
def readable(colour: str, background: str, enough: float = READABLE) -> str:
    """Return *colour*, moved towards black or white until it is readable on *background*."""
    goal = "#ffffff" if _luminance(background) < 0.18 else "#000000"
    for step in range(21):
        mixed = mix(colour, goal, step / 20)
        if contrast(mixed, background) >= enough:
            return mixed
    return goal


def mix(one: str, other: str, share: float) -> str:
    """Return *one* mixed with this share (0 to 1) of *other*."""
    return "#" + "".join(
        f"{round(a + (b - a) * share):02x}" for a, b in zip(_channels(one), _channels(other), strict=True)
    )


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (channel / 255 for channel in _channels(colour))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _locate_error(text: str, file: str, error: str) -> ConfigError:
    why, _, place = error.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    allowed: tuple[str, ...] = ()
    if named := re.search(r"unknown field `([^`]*)`|missing required field `([^`]*)`", why):
        table, key = path, named[1] or named[2]
        path = f"{path}.{key}".lstrip(".")
        allowed = tuple(get_type_hints(get_type_hints(ThemeFile).get(table, ThemeFile)))
        why = "no such key" if named[1] else "this key is missing"
    elif "matching regex" in why:
        why = "not a colour; write it as #rrggbb"
    else:
        why = why.lower().replace("`", "")
    return ConfigError(file, why, line=line_of(text, path.split(".")), key=path, allowed=allowed)
