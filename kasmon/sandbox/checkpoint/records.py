"""Records of a session's checkpoints, and contents stored beside its files: by digest, compressed, mode 0600."""

import contextlib
import hashlib
import zlib
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.guest_client.protocol import CheckpointTime


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint. `commit` and `size_bytes` refer to its files."""

    id: str
    commit: str = ""
    size_bytes: int = 0
    turn: int = 0
    when: CheckpointTime = "after"
    at: float = 0.0
    """Seconds since the epoch."""
    sha256: str = ""
    """Of the manifest, which has the hash of every file's content."""
    state: str = ""
    """SHA-256 of the saved interpreter state; empty where none was saved."""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    holder: str = ""
    """The name under which the repository holds the contents: this id, or that of an earlier, equal checkpoint."""
    left: tuple[str, ...] = ()
    """Files that are not stored, each with the reason."""


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    """All checkpoints, oldest first."""

    counted: int = 0
    """How many were ever taken: ids are not reused."""
    dropped: int = 0
    """How many were dropped since disk space was last freed."""
    checkpoints: tuple[CheckpointRecord, ...] = ()


class CheckpointRecords:
    """The records and contents in *folder*; each write is atomic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self) -> CheckpointList:
        """Return all records; none where none were written. Raises `SandboxError` if they cannot be read."""
        try:
            return msgspec.json.decode((self.folder / "checkpoints.json").read_bytes(), type=CheckpointList)
        except FileNotFoundError:
            return CheckpointList()
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError("the checkpoints of this session cannot be read", str(error)) from error

    def write(self, records: CheckpointList) -> None:
        write_private(self.folder / "checkpoints.json", msgspec.json.encode(records))

    def put(self, kind: str, content: bytes) -> str:
        """Store *content* as of *kind*, and return its SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        path = private_folder(self.folder / kind) / digest
        if not path.exists():
            write_private(path, zlib.compress(content, 1))
        return digest

    def get(self, kind: str, digest: str) -> bytes:
        """Return the content of *kind* stored under *digest*. Raises `SandboxError` if it is missing or damaged."""
        try:
            content = zlib.decompress((self.folder / kind / digest).read_bytes())
        except (OSError, zlib.error) as error:
            raise SandboxError("the checkpoint is damaged", str(error)) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise SandboxError("the checkpoint is damaged", f"its {kind} is not what it was")
        return content

    def sweep(self, kind: str, retain: set[str]) -> None:
        """Remove all contents of *kind* but *retain*."""
        with contextlib.suppress(FileNotFoundError):
            for path in (self.folder / kind).iterdir():
                if path.name not in retain:
                    path.unlink()
