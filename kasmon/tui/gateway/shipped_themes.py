"""Reads the themes that are shipped with kasmon."""

from functools import cache
from pathlib import Path
from typing import Final

from kasmon.tui.theme.theme import DEFAULT, ThemeFile, parse

SHIPPED: Final = Path(__file__).parents[2] / "themes"


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped themes, the default first."""
    names = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT))


@cache
def shipped(name: str) -> ThemeFile:
    """Return the shipped theme of this name."""
    return parse((SHIPPED / f"{name}.toml").read_text("utf-8"), f"themes/{name}.toml")
