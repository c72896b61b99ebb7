"""Notes that a sandboxed agent writes with `kasmon ctx`, in a file to which code inside can only append.

The content is untrusted: the reader checks its shape, and reads a bounded amount at a time.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

READ_BYTES: Final = 64 * 1024
LINE_BYTES: Final = 8192
NOTE_EVENT: Final = "kasmon.ctx"
"""The kind of note that `kasmon ctx` inside writes."""


class ContextNote(msgspec.Struct):
    """A note that `kasmon ctx` inside wrote."""

    event: str = ""
    at: float = 0.0
    """When, in seconds since the epoch, by the sandbox's clock."""
    done: str | None = None
    waiting: str | None = None


class ContextNotes:
    """Reads the notes in one file, each once."""

    def __init__(self) -> None:
        self._read_to = 0
        self._rest = b""

    def new(self, path: Path) -> list[ContextNote]:
        """Return the notes added to the file *path* since the last call; none where it does not exist.

        Raises:
            OSError: if the file cannot be read.
        """
        notes = []
        for line in self._lines(path):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                note = msgspec.json.decode(line, type=ContextNote)
                if note.event == NOTE_EVENT and (note.done is not None or note.waiting is not None):
                    notes.append(note)
        return notes

    def _lines(self, path: Path) -> list[bytes]:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._read_to:  # the file was replaced
                    self._read_to, self._rest = 0, b""
                file.seek(self._read_to)
                content = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self._read_to += len(content)
        *lines, rest = (self._rest + content).split(b"\n")
        self._rest = rest if len(rest) <= LINE_BYTES else b""
        return [line for line in lines if NOTE_EVENT.encode() in line and len(line) <= LINE_BYTES]
