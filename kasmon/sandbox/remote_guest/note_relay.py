"""Relays notes from inside to the file that the host reads, with the marks that the host knows now."""

import contextlib
import os
from typing import Final

import msgspec

from kasmon.sandbox.remote_guest.launch_spec import RemoteLaunchSpec

LONGEST: Final = 8192
MOST_BYTES: Final = 1 << 20
"""An unread file does not grow beyond this."""


class NoteRelay:
    """*marks*: generation and nonce that the agent was started with, possibly by an earlier stdio proxy."""

    def __init__(self, told: RemoteLaunchSpec, marks: tuple[str, str]) -> None:
        self._path, self._were, self._are = told.notes, marks, told.marks
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Relay each line that *data* completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= LONGEST else b""
        for line in lines:
            if self._path and len(line) <= LONGEST:
                with contextlib.suppress(OSError):
                    self._put(self._marked(line) + b"\n")

    def _marked(self, line: bytes) -> bytes:
        """Return *line* with the present marks, if it has those that its agent was started with."""
        if self._were == self._are:
            return line
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            note = msgspec.json.decode(line)
            if isinstance(note, dict) and (note.get("generation"), note.get("nonce")) == self._were:
                return msgspec.json.encode(note | dict(zip(("generation", "nonce"), self._are, strict=True)))
        return line

    def _put(self, line: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size + len(line) <= MOST_BYTES:
                os.write(file, line)
        finally:
            os.close(file)
