"""All screen rule files, the user's own before those of the agents' folders; reloaded when they change."""

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.agents.catalog import AgentCatalog, Stamp
from kasmon.detection.rules.file import LARGEST, ScreenRules, load
from kasmon.detection.version_range import version_of
from kasmon.errors import ConfigError
from kasmon.paths import read_stamp
from kasmon.toml_struct import read_text

MOST_FILES: Final = 500
"""The most files that are read from one folder."""


class AgentRules(NamedTuple):
    rules: ScreenRules
    note: str
    """Why these rules apply, if they are not for exactly its version; else empty."""


class RuleCatalog:
    """The rule files of several folders; an earlier folder takes precedence over a later one.

    An unusable file is reported in `problems`; its last valid content stays in use.
    """

    def __init__(self, folders: Iterable[Path] = (), program: str = "", agents: AgentCatalog | None = None) -> None:
        """*folders* hold the user's own files (`$XDG_CONFIG_HOME/kasmon/screens`); they may be missing.

        The folders of *agents* follow, by default only kasmon's. With *program*, only those of their files are read
        that name it: their patterns take most of the time of a command.
        """
        self._program = program
        self._own = tuple(folders)
        self._agents = agents or AgentCatalog()
        self._folders: tuple[Path, ...] = ()
        self._read: dict[Path, tuple[Stamp, ScreenRules | None]] = {}
        self._broken: dict[Path, ConfigError] = {}
        self._chosen: dict[tuple[str, str], AgentRules | None] = {}
        self.reload()

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        return tuple(self._broken[path] for path in sorted(self._broken))

    @property
    def programs(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, rules in self._read.values() if rules for name in rules.programs}))

    @property
    def all(self) -> tuple[ScreenRules, ...]:
        return tuple(rules for _, (_, rules) in sorted(self._read.items()) if rules is not None)

    def reload(self) -> bool:
        """Reload new, changed and deleted files; return whether there were any. Without changes it only calls stat."""
        found_stamps: dict[Path, Stamp] = {}
        agents = tuple(folder.path for folder in self._agents.all_folders())
        self._folders = (*self._own, *agents)
        for folder in self._own:
            found_stamps |= _stamps(folder, "*.toml", "")
        for folder in agents:
            found_stamps |= _stamps(folder, "screen*.toml", f'"{self._program}"' if self._program else "")
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
                self._read[path] = (stamp, _load(path, stamp))
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


@lru_cache(maxsize=64)
def _load(path: Path, stamp: Stamp) -> ScreenRules:
    """Load the rules of a file once in a process: their patterns take a tenth of a second."""
    return load(path)


def short_name(file: str) -> str:
    """Return the name of the rule file *file* in texts: `claude/screen.toml` in the folder of an agent."""
    path = Path(file)
    return f"{path.parent.name}/{path.name}" if path.name.startswith("screen") else path.name


def _stamps(folder: Path, pattern: str, text: str) -> dict[Path, Stamp]:
    """Return the files in *folder* that match *pattern* and contain *text*, with their stamps.

    A file that cannot be read counts as one that contains it: loading it tells why. Empty if *folder* cannot be read.
    """
    try:
        paths = sorted(folder.glob(pattern))[:MOST_FILES]
    except OSError:
        return {}
    return {path: read_stamp(path) for path in paths if not text or _contains(path, text)}


def _contains(path: Path, text: str) -> bool:
    try:
        return text in read_text(path, LARGEST)
    except ConfigError:
        return True
