"""All screen rule files, the user's own before the shipped ones; reloaded when they change."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.detection.rule_file import ScreenRules, load
from kasmon.detection.version_range import version_of
from kasmon.errors import ConfigError

SHIPPED: Final = Path(__file__).parent
MOST_FILES: Final = 500
"""The most files that are read from one folder."""

Stamp = tuple[int, int, int]
"""The mtime of a file, its size and its inode."""


class AgentRules(NamedTuple):
    rules: ScreenRules
    note: str
    """Why these rules apply, if they are not for exactly its version; else empty."""


class RuleCatalog:
    """The rule files of several folders; an earlier folder takes precedence over a later one.

    An unusable file is reported in `problems`; its last valid content stays in use.
    """

    def __init__(self, folders: Iterable[Path] = (), program: str = "") -> None:
        """*folders* hold the user's own files (`$XDG_CONFIG_HOME/kasmon/screens`); they may be missing.

        With *program*, only the shipped files that name it are read: their patterns take most of the time of a command.
        """
        self._program = program
        self._folders = (*folders, SHIPPED)
        self._read: dict[Path, tuple[Stamp, ScreenRules | None]] = {}
        self._broken: dict[Path, ConfigError] = {}
        self._chosen: dict[tuple[str, str], AgentRules | None] = {}
        self.reload()

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        """The errors of the unusable files."""
        return tuple(self._broken[path] for path in sorted(self._broken))

    @property
    def programs(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, rules in self._read.values() if rules for name in rules.programs}))

    @property
    def all(self) -> tuple[ScreenRules, ...]:
        """All valid rule files."""
        return tuple(rules for _, (_, rules) in sorted(self._read.items()) if rules is not None)

    def reload(self) -> bool:
        """Reload new, changed and deleted files; return whether there were any. Without changes it only calls stat."""
        found_stamps: dict[Path, Stamp] = {}
        for folder in self._folders:
            found_stamps |= _stamps(folder, f'"{self._program}"' if self._program and folder == SHIPPED else "")
        changed = False
        for path in [path for path in self._read if path not in found_stamps]:
            del self._read[path]
            self._broken.pop(path, None)
            changed = True
        for path, stamp in found_stamps.items():
            before = self._read.get(path)
            if before is not None and before[0] == stamp:
                continue
            changed = True
            try:
                self._read[path] = (stamp, load(path))
                self._broken.pop(path, None)
            except ConfigError as error:
                self._read[path] = (stamp, before[1] if before else None)
                self._broken[path] = error
        if changed:
            self._chosen.clear()
        return changed

    def rules(self, program: str, version: str = "") -> AgentRules | None:
        """Return the rules for *program* in *version* (`2.1.330`); None if there are none for that program.

        An unknown version gets the newest file, a version without a matching file the nearest one; `note` says so.
        """
        key = (program, version)
        if key not in self._chosen:
            self._chosen[key] = self._choose(program, version)
        return self._chosen[key]

    def _choose(self, program: str, version: str) -> AgentRules | None:
        ordered = [
            rules
            for folder in self._folders
            for path, (_, rules) in sorted(self._read.items())
            if path.parent == folder and rules is not None and program in rules.programs
        ]
        if not ordered:
            return None
        newest = max(ordered, key=lambda rules: rules.versions.start)
        number = version_of(version)
        if number is None:
            return AgentRules(newest, f"its version is not known, so it is read as {newest.file.versions or 'any'}")
        for folder in self._folders:
            fitting = [rules for rules in ordered if Path(rules.name).parent == folder and rules.versions.holds(number)]
            if fitting:
                return AgentRules(max(fitting, key=lambda rules: rules.versions.start), "")
        older = [rules for rules in ordered if rules.versions.start <= number]
        nearest = max(older, key=lambda rules: rules.versions.start, default=None)
        nearest = nearest or min(ordered, key=lambda rules: rules.versions.start)
        return AgentRules(nearest, f"there are no screen rules for {version}, so it is read as {nearest.file.versions}")


@cache
def shipped() -> RuleCatalog:
    """Return the catalog of the shipped files, read once."""
    return RuleCatalog()


def _stamps(folder: Path, text: str) -> dict[Path, Stamp]:
    """Return the files in *folder* that contain *text*, with their stamps; empty if it cannot be read."""
    try:
        paths = sorted(folder.glob("*.toml"))[:MOST_FILES]
    except OSError:
        return {}
    return {path: _stamp(path) for path in paths if not text or text in path.read_text("utf-8")}


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
