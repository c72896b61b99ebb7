"""An append-only event log, of one session or of the fleet. It is the source of truth.

The format is JSON lines. A cursor is the byte offset behind a line; there is no other sequence number. The writer
appends a line with one `write` under flock. The next writer ends a torn line (its writer died); readers skip it.
"""

import fcntl
import mmap
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
FIRST_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
"""How much is read at once: first, as most reads are of a few new events; and of a long log."""


class EventLog:
    """The log at *path*; the constructor does not access the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(
        self, event: BaseEvent | bytes, *, durable: bool = False, check: Callable[[], None] | None = None
    ) -> Cursor:
        """Write *event*, which may be encoded already, as one line and return the cursor behind it.

        Args:
            durable: return only when the event is on the disk (answers, plan events, sandbox intents).
            check: called while the log is locked against other writers; may read it. If it raises, nothing is written.

        Raises:
            OSError: if the line cannot be written completely (such as a full disk). The partial line is removed, so the
                caller can try again.
        """
        line = (event if isinstance(event, bytes) else encode(event)) + b"\n"
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
                while written < len(line):  # on a full disk, the next write raises
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

        To continue later, pass the last cursor as *since*. Reading never blocks and needs no running host. A
        half-written last line is left for the next call; a torn line in the middle is skipped. A line that this version
        cannot decode is yielded as `UnknownEvent`.

        Raises:
            LogMissingError: if the session never had a log (an empty log is no error).
        """
        for line, cursor in self.lines(since):
            if line[:1] == b"{" and line[-1:] == b"}":
                event = decode(line)
                if not isinstance(event, UnknownEvent) or _is_whole(line):
                    yield event, cursor

    def events(self) -> Iterator[Event]:
        """Yield all events, oldest first. Raises as `read`."""
        return (event for event, _ in self.read())

    def lines(self, since: Cursor = START) -> Iterator[tuple[bytes, Cursor]]:
        """Yield the raw complete lines after *since*, without their newline, each with the cursor behind it.

        Raises:
            LogMissingError: if there is no log.
            OSError: if it cannot be read, as a link that leads nowhere: its session may well have begun.
        """
        try:
            handle = open_regular(self.path, os.O_RDONLY)
        except FileNotFoundError as error:
            if self.path.is_symlink():
                raise
            raise LogMissingError(str(self.path)) from error
        try:
            cursor, at, size, rest = since, int(since), FIRST_BYTES, b""
            while piece := os.pread(handle, size, at):
                at, size = at + len(piece), CHUNK_BYTES
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    cursor = Cursor(cursor + len(line) + 1)
                    yield line, cursor
        finally:
            os.close(handle)

    def find_last(self, kind: type[BaseEvent]) -> Event | None:
        """Return the last event of *kind*; None if there is none. Searches bytes: a log of 100 MB takes about 0.1 s.

        Raises:
            OSError: if the log cannot be read.
        """
        wanted = f'"kind":"{kind.__struct_config__.tag}"'.encode()
        try:
            file = os.fdopen(open_regular(self.path, os.O_RDONLY), "rb")
        except FileNotFoundError:
            return None
        with file:
            if not os.fstat(file.fileno()).st_size:
                return None
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                at = len(content)
                while (at := content.rfind(wanted, 0, at)) >= 0:
                    start, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
                    event = decode(content[start:end]) if end >= 0 else None
                    if isinstance(event, kind):  # else a text quotes this
                        return event
        return None

    def size(self) -> int:
        """Return the log's size in bytes; 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def _is_whole(line: bytes) -> bool:
    """Return whether *line* is JSON; a torn line that happens to end in a brace is not."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    except RecursionError:  # nested too deeply to decode, so it is not a torn line
        pass
    return True
