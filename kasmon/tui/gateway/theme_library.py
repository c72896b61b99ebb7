"""All available themes: the shipped ones, and the user's own, of which the last valid version is kept."""

from functools import cache
from pathlib import Path, PurePath
from typing import Final

from kasmon.errors import ConfigError
from kasmon.tui.theme.theme import DEFAULT, ThemeFile, parse

SHIPPED: Final = Path(__file__).parents[2] / "themes"


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped themes, the default first."""
    names = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT))


@cache
def shipped(name: str) -> ThemeFile:
    return parse((SHIPPED / f"{name}.toml").read_text("utf-8"), f"themes/{name}.toml")


class ThemeLibrary:
    """Themes by name; a user's theme replaces a shipped one of its name."""

    def __init__(self) -> None:
        self._own: dict[str, ThemeFile] = {}
        self.problems: tuple[str, ...] = ()
        """The errors in the user's theme files."""

    def put(self, files: tuple[tuple[str, str], ...]) -> None:
        """Load the user's theme files, as path and text; one with an error stays as it was."""
        kept: dict[str, ThemeFile] = {}
        problems: list[str] = []
        for path, text in files:
            name = PurePath(path).stem
            try:
                kept[name] = parse(text, path)
            except ConfigError as error:
                problems.append(str(error))
                if name in self._own:
                    kept[name] = self._own[name]
        self._own = kept
        self.problems = tuple(problems)

    def get(self, name: str) -> ThemeFile | None:
        """Return the theme of this name; the default for no name; None if there is none."""
        wanted = name or DEFAULT
        if wanted in self._own:
            return self._own[wanted]
        return shipped(wanted) if wanted in shipped_names() else None

    def all(self) -> list[tuple[str, ThemeFile]]:
        """Return every theme with its name, shipped ones first."""
        names = [*shipped_names(), *sorted(set(self._own) - set(shipped_names()))]
        return [(name, theme) for name in names if (theme := self.get(name)) is not None]
