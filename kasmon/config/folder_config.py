"""The config that a folder brings along: found at the root of its repository, read once, known by its content's hash.

It is foreign: `look` takes it for data whatever it is, and only `overlaid` gives it a meaning.
"""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config.parser import parse
from kasmon.config.schema import Config
from kasmon.errors import ConfigError

NAME: Final = ".kasmon.toml"
LARGEST_BYTES: Final = 16_384
"""A person has to read it; and there is TOML that takes time quadratic in its length."""


class FolderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at `NAME` in the root of a folder's repository, as it was when it was read."""

    root: str
    """The real path of that root; of a worktree or a submodule its own."""
    device: int
    inode: int
    """Which folder that is, whatever it is called."""
    content: bytes = b""
    digest: str = ""
    """SHA-256 of *content*, in hexadecimal; empty where it could not be read."""
    fault: str = ""
    """Why it could not be read; it never counts then."""
    is_linked: bool = False
    """The folder was reached by another path than its real one."""

    @property
    def file(self) -> str:
        """The path of its file."""
        return str(Path(self.root, NAME))


def look(folder: Path) -> FolderConfig | None:
    """The config that *folder* brings along; None where it brings none. Runs nothing, follows no link, never waits."""
    try:
        real = os.path.realpath(folder)
        root = root_of(Path(real))
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(handle)
        found = _read(handle)
    finally:
        os.close(handle)
    if found is None:
        return None
    content, fault = found
    return FolderConfig(
        root=str(root),
        device=facts.st_dev,
        inode=facts.st_ino,
        content=content,
        digest="" if fault else hashlib.sha256(content).hexdigest(),
        fault=fault,
        is_linked=os.path.abspath(folder) != real,  # noqa: PTH100 (`absolute` keeps `..`)
    )


def root_of(folder: Path) -> Path:
    """The nearest folder from *folder* upwards that git would take for a repository's; else *folder* itself.

    A `.git` is a file in worktrees and submodules; a folder of that name without a HEAD is none.
    """
    for upwards in (folder, *folder.parents):
        if (upwards / ".git").is_file() or os.path.lexists(upwards / ".git" / "HEAD"):
            return upwards
    return folder


def overlaid(config: Config, local: FolderConfig) -> Config:
    """*config* with what *local* says of how sessions begin: `default_agent` and `agents`. Nothing else of it counts.

    Raises:
        ConfigError: if it is not valid TOML, or holds what the schema does not know.
    """
    said = parse(_text(local), local.file, config)
    return msgspec.structs.replace(config, default_agent=said.default_agent, agents=said.agents)


def tables(local: FolderConfig) -> dict[str, object]:
    """What stands in it, without a meaning.

    Raises:
        ConfigError: if it is not valid TOML.
    """
    import tomllib

    try:
        return tomllib.loads(_text(local))
    except (ValueError, RecursionError) as error:
        raise ConfigError(local.file, "it is not valid TOML") from error


def _text(local: FolderConfig) -> str:
    try:
        return local.content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(local.file, "it is not UTF-8") from error


def _read(folder: int) -> tuple[bytes, str] | None:
    """What lies in the open *folder*, or why it cannot be read; None where there is nothing."""
    try:
        handle = os.open(NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return b"", "it is a symbolic link" if error.errno == errno.ELOOP else f"it cannot be read ({error.strerror})"
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return b"", "it is not a regular file"
        content = _bytes(handle)
    except OSError as error:
        return b"", f"it cannot be read ({error.strerror})"
    finally:
        os.close(handle)
    return (b"", f"it is larger than {LARGEST_BYTES >> 10} KB") if len(content) > LARGEST_BYTES else (content, "")


def _bytes(handle: int) -> bytes:
    """What the file holds, as far as the first byte too many."""
    content = b""
    while len(content) <= LARGEST_BYTES and (more := os.read(handle, LARGEST_BYTES + 1 - len(content))):
        content += more
    return content
