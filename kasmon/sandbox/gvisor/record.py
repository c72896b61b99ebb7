"""What this machine knows of one session's gVisor sandbox, in a file of its ground."""

from pathlib import Path

import msgspec

from kasmon.model.sandbox import Runtime
from kasmon.paths import write_private


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Where it lives, and who leads there."""

    runtime: Runtime
    """Its `remote` is the name by which runsc knows it, another one at each start."""
    relay: Runtime


def noted(path: Path) -> Record | None:
    """What is written at *path*; None where that is nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def note(path: Path, record: Record) -> None:
    """Write *record* to *path*, for nobody else.

    Raises:
        OSError: if that cannot be.
    """
    write_private(path, msgspec.json.encode(record))
