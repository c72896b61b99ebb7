"""The config file of a project folder: found at the root of its repository, read once, identified by its hash.

It is untrusted: `read_folder_config` reads it as plain data, and only `overlay` interprets it.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from kasmon.config.parser import parse
from kasmon.config.schema import Config
from kasmon.errors import ConfigError

NAME: Final = ".kasmon.toml"
OF_WORKTREE: Final = ("setup", "setup_s", "copy", "link", "teardown")
"""The settings of `[worktree]` that apply from this file."""
LARGEST_BYTES: Final = 16_384
"""The user has to review it; and some TOML takes time quadratic in its length to parse."""


class FolderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file `NAME` in the root of a folder's repository, as of the time it was read."""

    root: str
    """The real path of that root; a worktree or a submodule has its own root."""
    device: int
    inode: int
    """With `device`, identifies the root folder independently of its path."""
    content: bytes = b""
    digest: str = ""
    """SHA-256 of *content*, in hexadecimal; empty if the file could not be read."""
    fault: str = ""
    """Why the file could not be read; such a config is never trusted."""
    is_linked: bool = False
    """Whether the folder was reached by another path than its real one."""

    @property
    def file(self) -> str:
        return str(Path(self.root, NAME))


def read_folder_config(folder: Path) -> FolderConfig | None:
    """Return the config file of *folder*; None if there is none. Runs nothing, follows no link, never blocks."""
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
    import hashlib  # only here: few folders have a config, and the library takes 4 ms to load

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
    """Return the nearest folder, from *folder* upwards, that git would accept as a repository; else *folder* itself.

    A `.git` is a file in worktrees and submodules; a `.git` folder without a HEAD does not count.
    """
    for upwards in (folder, *folder.parents):
        if (upwards / ".git").is_file() or os.path.lexists(upwards / ".git" / "HEAD"):
            return upwards
    return folder


def overlay(config: Config, local: FolderConfig) -> Config:
    """Return *config* with what *local* may set: `default_agent`, `agents`, `templates`, and `OF_WORKTREE`.

    Raises:
        ConfigError: if it is not valid TOML, or has settings that the schema does not know.
    """
    parsed = parse(_text(local), local.file, config)
    own = {field: getattr(parsed.worktree, field) for field in OF_WORKTREE}
    worktree = msgspec.structs.replace(config.worktree, **own)
    return msgspec.structs.replace(
        config,
        default_agent=parsed.default_agent,
        agents=parsed.agents,
        templates=parsed.templates,
        worktree=worktree,
    )


def tables(local: FolderConfig) -> dict[str, object]:
    """Return the file's parsed TOML, without applying the schema. Raises `ConfigError` if it is not valid TOML."""
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
    """Return the content of the file in the open *folder*, or why it cannot be read; None if there is no file."""
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
    """Read the file, up to one byte beyond the limit."""
    content = b""
    while len(content) <= LARGEST_BYTES and (more := os.read(handle, LARGEST_BYTES + 1 - len(content))):
        content += more
    return content
