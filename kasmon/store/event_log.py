"""One append-only log: the truth about one session, or about the fleet.

JSON lines; the cursor is the byte offset behind a line, there is no other sequence number. A line is written with one
`write` under flock. A torn line (its writer died) is ended by the next writer and skipped by readers.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NewType

import msgspec

from kasmon.errors import LogMissingError
from kasmon.model.events import BaseEvent, Event, UnknownEvent, decode, encode
from kasmon.paths import open_regular

Cursor = NewType("Cursor", int)
"""A position in one log, in bytes from its start."""

START = Cursor(0)
CHUNK_BYTES = 1 << 20


class EventLog:
    """The log at *path*; making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: BaseEvent, *, durable: bool = False, check: Callable[[], None] | None = None) -> Cursor:
        """Write *event* as one line and return the cursor behind it.

        Args:
            durable: return only when the disk has it (answers, plan facts, sandbox intents).
            check: called when nobody else can append any more; if it raises, nothing is written. It may read the log.

        Raises:
            OSError: if it could not be written whole (a full disk, say); what was written of it is taken back, so that
                it can be tried again.
        """
        line = encode(event) + b"\n"
        handle = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if check is not None:
                check()
            end = os.lseek(handle, 0, os.SEEK_END)
            if end and os.pread(handle, 1, end - 1) != b"\n":
                line = b"\n" + line
            try:
                written = os.write(handle, line)
                while written < len(line):  # where the disk is full, the next one says so
                    written += os.write(handle, line[written:])
                if durable:
                    os.fsync(handle)
            except OSError:
                os.ftruncate(handle, end)
                raise
            return Cursor(end + written)
        finally:
            os.close(handle)

    def read(self, since: Cursor = START) -> Iterator[tuple[Event, Cursor]]:
        """Yield the events after *since*, oldest first, each with the cursor behind it.

        Keep the last cursor and pass it back to go on; reading never blocks and needs no running host. A half-written
        last line is left for the next call; a torn line in the middle is skipped. A line that this version cannot read
        comes as `UnknownEvent`.

        Raises:
            LogMissingError: if the session never had a log (an empty log is no error).
        """
        for line, cursor in self.lines(since):
            if line[:1] == b"{" and line[-1:] == b"}":
                event = decode(line)
                if not isinstance(event, UnknownEvent) or _is_whole(line):
                    yield event, cursor

    def lines(self, since: Cursor = START) -> Iterator[tuple[bytes, Cursor]]:
        """Yield the raw complete lines after *since*, without their newline, each with the cursor behind it.

        Raises:
            LogMissingError: if there is no log.
            OSError: if it cannot be read.
        """
        try:
            file = os.fdopen(open_regular(self.path, os.O_RDONLY), "rb", buffering=CHUNK_BYTES)
        except FileNotFoundError as error:
            raise LogMissingError(str(self.path)) from error
        with file:
            file.seek(since)
            cursor = since
            for line in file:
                if not line.endswith(b"\n"):
                    return
                cursor = Cursor(cursor + len(line))
                yield line[:-1], cursor

    def size(self) -> int:
        """How many bytes it has; 0 if it is not there."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def _is_whole(line: bytes) -> bool:
    """Whether *line* is JSON; a torn line that happens to end in a brace is not."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    except RecursionError:  # nested too deep to tell; whoever wrote that wrote a line
        pass
    return True
