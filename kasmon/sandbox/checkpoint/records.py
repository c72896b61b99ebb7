"""Where the records of a session's checkpoints lie, and what is kept beside its files: by digest, compressed, 0600."""

import contextlib
import hashlib
import zlib
from pathlib import Path

import msgspec

from kasmon.errors import SandboxError
from kasmon.paths import private_folder, write_private
from kasmon.sandbox.guest_client.protocol import CheckpointPoint, When


class CheckpointRecord(CheckpointPoint, frozen=True, kw_only=True):
    """What was kept at one moment. `commit` and `size_bytes` are of its files."""

    turn: int = 0
    when: When = "after"
    at: float = 0.0
    """Seconds since the epoch."""
    sha256: str = ""
    """Of the manifest, which names the content of every file."""
    state: str = ""
    """SHA-256 of what interpreters kept; empty where nothing was."""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    holder: str = ""
    """Under which name the repository holds the contents: of this one, or of an earlier one that had the same."""
    left: tuple[str, ...] = ()
    """Files that were there and are not kept, each with its reason."""


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    """All checkpoints, oldest first."""

    counted: int = 0
    """So many were ever taken: ids are not used again."""
    dropped: int = 0
    """So many were dropped since their room was freed."""
    checkpoints: tuple[CheckpointRecord, ...] = ()


class CheckpointRecords:
    """The records and contents in *folder*; what is written there is whole or not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self) -> CheckpointList:
        """All that is recorded; nothing where nothing was.

        Raises:
            SandboxError: if it cannot be read.
        """
        try:
            return msgspec.json.decode((self.folder / "checkpoints.json").read_bytes(), type=CheckpointList)
        except FileNotFoundError:
            return CheckpointList()
        except (OSError, msgspec.MsgspecError) as error:
            raise SandboxError("the checkpoints of this session cannot be read", str(error)) from error

    def write(self, records: CheckpointList) -> None:
        """Let *records* be all that is recorded."""
        write_private(self.folder / "checkpoints.json", msgspec.json.encode(records))

    def put(self, kind: str, content: bytes) -> str:
        """Keep *content* among those of its *kind*; its SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        path = private_folder(self.folder / kind) / digest
        if not path.exists():
            write_private(path, zlib.compress(content, 1))
        return digest

    def get(self, kind: str, digest: str) -> bytes:
        """What was put there as *digest*.

        Raises:
            SandboxError: if it is not there, or not what it was.
        """
        try:
            content = zlib.decompress((self.folder / kind / digest).read_bytes())
        except (OSError, zlib.error) as error:
            raise SandboxError("the checkpoint is damaged", str(error)) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise SandboxError("the checkpoint is damaged", f"its {kind} is not what it was")
        return content

    def sweep(self, kind: str, keep: set[str]) -> None:
        """Remove all of this *kind* but *keep*."""
        with contextlib.suppress(FileNotFoundError):
            for path in (self.folder / kind).iterdir():
                if path.name not in keep:
                    path.unlink()
