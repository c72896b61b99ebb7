"""Reads the JSON files that kasmon keeps beside a sandbox."""

from pathlib import Path
from typing import TypeVar

import msgspec

Shape = TypeVar("Shape")


def load_json(path: Path, shape: type[Shape]) -> Shape | None:
    """Return the content of the file *path* as *shape*; None if it cannot be read, or is no JSON of that shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
