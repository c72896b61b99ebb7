"""The folder configs that the user trusts, each with its exact content. If the file is unreadable, none is trusted."""

from typing import Final

import msgspec

from kasmon.config.folder_config import FolderConfig
from kasmon.errors import NotFoundError, UsageError
from kasmon.paths import Paths, read_json, write_private
from kasmon.store.file_lock import lock

NAME: Final = "local-trust.json"
"""In the state folder, mode 0600: a process that can write there can already do anything as this user."""


class TrustedContent(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    device: int
    inode: int
    digest: str
    at: float
    """When the user trusted it, in seconds since the epoch."""

    def is_of(self, local: FolderConfig) -> bool:
        """Return whether *local* is exactly this content of this folder, reached by the folder's real path."""
        if local.fault or local.is_linked:
            return False
        now = (local.root, local.device, local.inode, local.digest)
        return now == (self.root, self.device, self.inode, self.digest)


class TrustedFolders:
    """The trusted configs recorded under *paths*: one content for each folder, the latest."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._path = paths.state / NAME

    def read(self) -> tuple[TrustedContent, ...]:
        """Return everything trusted, oldest first; empty if it cannot be read."""
        return read_json(self._path, tuple[TrustedContent, ...], ())

    def counts(self, local: FolderConfig) -> bool:
        """Return whether exactly *local* is trusted."""
        return any(known.is_of(local) for known in self.read())

    def add(self, local: FolderConfig, at: float) -> None:
        """Trust *local*, and revoke trust of the folder's earlier content.

        Raises:
            UsageError: if the folder's path is not UTF-8.
            OSError: if the file cannot be written.
        """
        try:
            local.root.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the folder {local.root!r} is not UTF-8.") from error
        added = TrustedContent(root=local.root, device=local.device, inode=local.inode, digest=local.digest, at=at)
        self._paths.make()
        with lock(self._path):
            self._write((*(known for known in self.read() if known.root != local.root), added))

    def remove(self, root: str) -> None:
        """Revoke trust of the config of the folder *root*.

        Raises:
            NotFoundError: if it is not trusted.
            OSError: if the file cannot be written.
        """
        self._paths.make()
        with lock(self._path):
            known = self.read()
            remaining = tuple(one for one in known if one.root != root)
            if remaining == known:
                raise NotFoundError(f"{root!r} is not trusted.", hint="See `kasmon trust --list`.")
            self._write(remaining)

    def _write(self, trusted: tuple[TrustedContent, ...]) -> None:
        write_private(self._path, msgspec.json.encode(trusted))
