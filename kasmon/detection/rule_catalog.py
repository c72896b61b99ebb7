"""All screens' files that are there: a person's own, then the shipped ones; read anew when they change."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from kasmon.detection.rule_file import ScreenRules, load
from kasmon.detection.version_range import version_of
from kasmon.errors import ConfigError

SHIPPED: Final = Path(__file__).parent
MOST_FILES: Final = 500
"""So many files of one folder are read."""

Stamp = tuple[int, int, int]
"""When a file changed last, its size and its inode."""


class AgentRules(NamedTuple):
    """The rules for one agent."""

    rules: ScreenRules
    note: str
    """Why these, where they are not made for exactly its version; empty where they are."""


class RuleCatalog:
    """The files of some folders, those of an earlier folder before those of a later one.

    A file that cannot be used is told of in `problems`; what it said before goes on to count.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        """*folders* hold a person's own files (`$XDG_CONFIG_HOME/kasmon/screens`); none of them need be there."""
        self._folders = (*folders, SHIPPED)
        self._read: dict[Path, tuple[Stamp, ScreenRules | None]] = {}
        self._broken: dict[Path, ConfigError] = {}
        self._chosen: dict[tuple[str, str], AgentRules | None] = {}
        self.reload()

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        """What is wrong with files that cannot be used as they are."""
        return tuple(self._broken[path] for path in sorted(self._broken))

    @property
    def programs(self) -> tuple[str, ...]:
        """The agents that there are rules for."""
        return tuple(sorted({name for _, rules in self._read.values() if rules for name in rules.programs}))

    @property
    def all(self) -> tuple[ScreenRules, ...]:
        """Every file that counts."""
        return tuple(rules for _, (_, rules) in sorted(self._read.items()) if rules is not None)

    def reload(self) -> bool:
        """Look for files that came, changed or went; whether there were any. Without change it only asks for stats."""
        there: dict[Path, Stamp] = {}
        for folder in self._folders:
            there |= _stamps(folder)
        changed = False
        for path in [path for path in self._read if path not in there]:
            del self._read[path]
            self._broken.pop(path, None)
            changed = True
        for path, stamp in there.items():
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
        """The rules for *program* in *version* (`2.1.330`); None where there are none for that program.

        A version that nobody knows is read by the newest file, one that no file is for by the nearest: `note` says so.
        """
        wanted = (program, version)
        if wanted not in self._chosen:
            self._chosen[wanted] = self._choose(program, version)
        return self._chosen[wanted]

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
    """The files that kasmon ships, read once."""
    return RuleCatalog()


def _stamps(folder: Path) -> dict[Path, Stamp]:
    """The files in *folder*; none where it cannot be read."""
    try:
        paths = sorted(folder.glob("*.toml"))[:MOST_FILES]
    except OSError:
        return {}
    return {path: _stamp(path) for path in paths}


def _stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return 0, 0, 0
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
