"""Find what is known of an agent: in the user's own folder, in kasmon's, and in those of other packages.

Only the files of the agent that is asked for are read; the names are those of the folders. kasmon's own profiles are
read from one file, `profiles.json`, that `make pages` writes from their folders: a command has no time for TOML. No
code of another package is run: its entry point in the group `kasmon.agents` names the package with the folders.
"""

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kasmon.agents.profile import LARGEST, NAME, AgentProfile, parse
from kasmon.errors import ConfigError, NotFoundError
from kasmon.paths import Paths, config_folder, read_stamp
from kasmon.toml_struct import read_text

SHIPPED: Final = Path(__file__).parent
PROFILES: Final = SHIPPED / "profiles.json"
"""All profiles in `SHIPPED`: the name of each folder -> the tables of its `profile.toml`, none without that file."""
GROUP: Final = "kasmon.agents"
PROFILE: Final = "profile.toml"
MOST_FOLDERS: Final = 200
"""The most agents that are read from one place."""
LAST: Final = ("shell", "scripted")
"""Listed behind all others: they are no agents of other people."""

Stamp = tuple[int, int, int]


class AgentFolder(NamedTuple):
    """One folder of an agent."""

    path: Path
    origin: str
    """Where it is from: `kasmon`, `user`, or the name of another package."""

    @property
    def name(self) -> str:
        return self.path.name


class AgentCatalog:
    """The agents of one user: of several folders with one name, the user's own counts, then kasmon's."""

    def __init__(self, own: Path | None = None) -> None:
        """*own* has the user's folders (`$XDG_CONFIG_HOME/kasmon/agents`); it may be missing. None: only kasmon's."""
        self._own = own

    def folders(self, name: str) -> Iterator[AgentFolder]:
        """Yield the folders of the agent *name*, the one that counts first."""
        if NAME.fullmatch(name):
            for place, origin in self._paths():
                if name in _names_in(place):
                    yield AgentFolder(place / name, origin)

    def all_folders(self) -> Iterator[AgentFolder]:
        """Yield all folders of agents: the user's own first, then kasmon's, then those of other packages."""
        for place, origin in self._paths():
            for name in sorted(_names_in(place)):
                yield AgentFolder(place / name, origin)

    def names(self) -> tuple[str, ...]:
        """Return the names of all agents, in alphabetical order."""
        found = {name for place, _ in self._paths() for name in _names_in(place)}
        return tuple(sorted(found, key=lambda name: (name in LAST, LAST.index(name) if name in LAST else 0, name)))

    def load(self, name: str) -> AgentProfile:
        """Return the profile of the agent *name*: that of the first of its folders that has one.

        Raises:
            NotFoundError: if there is no such agent.
            ConfigError: if its profile is not valid.
        """
        folder = None
        for folder in self.folders(name):
            if folder.path.parent == SHIPPED:
                return _read_shipped()[name]
            file = folder.path / PROFILE
            if any(stamp := read_stamp(file)):
                return _load(file, stamp)
        if folder:
            return AgentProfile(name=name)
        raise NotFoundError(f"there is no agent {name!r}.", hint=f"Known: {', '.join(self.names())}.")

    def get(self, name: str) -> AgentProfile | None:
        """Return the profile of the agent *name*; None if there is none, or if it is not valid."""
        try:
            return self.load(name)
        except (NotFoundError, ConfigError):
            return None

    def find(self, program: str) -> AgentProfile | None:
        """Return the profile of the agent with the program *program*, by any of its names; None if there is none."""
        if not NAME.fullmatch(program):
            return None
        return self.get(program) or self.get(_read_aliases(self._own, self._own_stamps()).get(program, ""))

    def _own_stamps(self) -> tuple[Stamp, ...]:
        """Return what changes with the user's own profiles; kasmon's and those of packages do not change."""
        own = self._own
        return () if own is None else tuple(read_stamp(own / name / PROFILE) for name in sorted(_names_in(own)))

    def _paths(self) -> Iterator[tuple[Path, str]]:
        if self._own is None:
            yield SHIPPED, "kasmon"
            return
        yield self._own, "user"
        yield SHIPPED, "kasmon"
        yield from _packages()


def catalog(where: Paths | None = None) -> AgentCatalog:
    """Return the catalog of the user of *where*, by default of this process's environment."""
    if where:
        return AgentCatalog(where.agents)
    return _catalog_of(os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))


@lru_cache(maxsize=8)
def _catalog_of(config_home: str | None, home: str | None) -> AgentCatalog:
    """Return the catalog of the user whose environment has these values, which `config_folder` reads."""
    return AgentCatalog(config_folder(os.environ) / "agents")


def find(program: str) -> AgentProfile:
    """Return what is known of the agent with the program *program*; an empty profile for an unknown one."""
    return catalog().find(program) or UNKNOWN


def find_other(name: str) -> AgentProfile | None:
    """Return what is known of the agent that introduces itself as *name*; None if nothing."""
    return catalog().find(name.lower())


def resolved(program: str) -> str:
    """Return the name that kasmon uses for *program*, which may be another of its agent's names."""
    return find(program).name or program


UNKNOWN: Final = AgentProfile()


@cache
def _packages() -> tuple[tuple[Path, str], ...]:
    """Return the folders of other packages, and the packages' names. It imports none of them."""
    if not _is_named_by_packages():
        return ()
    from importlib.metadata import entry_points  # takes 30 ms
    from importlib.util import find_spec

    found: list[tuple[Path, str]] = []
    for each in entry_points(group=GROUP):
        package, *inner = each.value.split(".")
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            continue
        name = each.dist.name if each.dist else each.name
        found += [(Path(top, *inner), name) for top in (spec and spec.submodule_search_locations) or ()]
    return tuple(found)


def _is_named_by_packages() -> bool:
    """Whether some installed package has an entry point for agents; a quick look before `importlib.metadata`'s."""
    group = f"[{GROUP}]".encode()
    for top in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(top or "."):  # noqa: PTH208 - a hundred paths would take longer than the files
                if name.endswith((".dist-info", ".egg-info")):
                    with contextlib.suppress(OSError), Path(f"{top or '.'}/{name}/entry_points.txt").open("rb") as file:
                        if group in file.read():
                            return True
    return False


@lru_cache(maxsize=8)
def _read_aliases(own: Path | None, stamps: tuple[Stamp, ...]) -> dict[str, str]:
    """Return each other name of an agent's program -> the name of the agent; read again when own profiles change."""
    agents = AgentCatalog(own)
    return {other: name for name in agents.names() if (known := agents.get(name)) for other in known.also}


@cache
def _read_shipped() -> dict[str, AgentProfile]:
    """Read kasmon's own profiles, once in a process: they do not change."""
    profiles = msgspec.json.decode(PROFILES.read_bytes(), type=dict[str, AgentProfile])
    return {name: msgspec.structs.replace(profile, name=name) for name, profile in profiles.items()}


def _names_in(place: Path) -> Collection[str]:
    return _read_shipped().keys() if place == SHIPPED else _names(place, read_stamp(place))


@lru_cache(maxsize=64)
def _names(folder: Path, stamp: Stamp) -> frozenset[str]:
    try:
        inner = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir())
        return frozenset(path.name for path in inner[:MOST_FOLDERS])
    except OSError:
        return frozenset()


@lru_cache(maxsize=256)
def _load(file: Path, stamp: Stamp) -> AgentProfile:
    """Load a profile once in a process, until it changes."""
    return parse(read_text(file, LARGEST), file.parent.name, str(file))
