"""The agents of the Agent Client Protocol's registry, as data: which there are, and how each is started.

`registry.json` is a snapshot of some of them in the registry's own format. `kasmon agents update` stores a newer one in
the state folder. Nothing of it is installed or run.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, TypeAlias

import msgspec

from kasmon.agents.profile import Line, Lines
from kasmon.errors import ConfigError
from kasmon.paths import Paths
from kasmon.toml_struct import read_text

LARGEST: Final = 2 * 1024 * 1024
"""The greatest size of a registry, in bytes."""
SNAPSHOT: Final = Path(__file__).with_name("registry.json")
URL: Final = "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json"
ID: Final = re.compile(r"[a-z][a-z0-9-]{0,59}")

Package: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A@?[A-Za-z0-9][\w./@+~-]{0,199}\Z")]
"""A package of npm or PyPI, with a version or without; never a flag."""
ProgramPath: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A(\./)?[A-Za-z0-9][\w./\\+-]{0,199}\Z")]


class PackageStart(msgspec.Struct, frozen=True):
    """An agent in a package."""

    package: Package
    cmd: ProgramPath = ""
    """The program in the package; empty for the one that is named like it."""
    args: Lines = ()


class DownloadStart(msgspec.Struct, frozen=True):
    """An agent in an archive for one platform."""

    cmd: ProgramPath
    args: Lines = ()


class Distribution(msgspec.Struct, frozen=True):
    npx: PackageStart | None = None
    uvx: PackageStart | None = None
    binary: Annotated[dict[Line, DownloadStart], msgspec.Meta(max_length=20)] = {}
    """Platform, such as `linux-x86_64` -> its archive."""


class RegisteredAgent(msgspec.Struct, frozen=True):
    """One agent of the registry. Keys that kasmon does not use are ignored."""

    id: str
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=60, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
    version: Annotated[str, msgspec.Meta(max_length=40, pattern=r"\A[\w.+-]*\Z")]
    distribution: Distribution

    @property
    def start(self) -> tuple[str, ...]:
        """Return the command that starts it with the protocol, by npm if it is there; empty if it names none."""
        for runner, option, start in (
            ("npx", "--package", self.distribution.npx),
            ("uvx", "--from", self.distribution.uvx),
        ):
            if start:
                named = (option, start.package, start.cmd) if start.cmd else (start.package,)
                return (runner, *(("--yes",) if runner == "npx" else ()), *named, *start.args)
        for download in self.distribution.binary.values():
            return (_program(download), *download.args)
        return ()

    @property
    def programs(self) -> tuple[str, ...]:
        """Return the names that its program may have."""
        packages = [start for start in (self.distribution.npx, self.distribution.uvx) if start]
        names = [start.cmd or start.package.lstrip("@").rpartition("/")[2].partition("@")[0] for start in packages]
        return (self.id, *names, *(_program(download) for download in self.distribution.binary.values()))


class _Registry(msgspec.Struct, frozen=True):
    agents: Annotated[tuple[RegisteredAgent, ...], msgspec.Meta(max_length=1000)]


def load(where: Paths) -> tuple[RegisteredAgent, ...]:
    """Return the agents of the stored registry, or of kasmon's snapshot if none is stored, in the order of their ids.

    Raises:
        ConfigError: if the stored one is not valid.
    """
    file = where.acp_registry if where.acp_registry.exists() else SNAPSHOT
    return parse(read_text(file, LARGEST), str(file))


def parse(text: str, name: str) -> tuple[RegisteredAgent, ...]:
    """Return the agents of the registry *text*, in the order of their ids; *name* appears only in errors.

    Raises:
        ConfigError: if it is no registry, or has a value that kasmon does not accept.
    """
    try:
        agents = msgspec.json.decode(text, type=_Registry).agents
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise ConfigError(name, f"it is no registry of agents ({error})") from error
    for agent in agents:
        if not ID.fullmatch(agent.id):
            raise ConfigError(name, f"{agent.id!r} is not the id of an agent", key="agents")
    return tuple(sorted(agents, key=lambda agent: agent.id))


def _program(download: DownloadStart) -> str:
    return PurePosixPath(download.cmd.replace("\\", "/")).name.removesuffix(".exe").removesuffix(".cmd")
