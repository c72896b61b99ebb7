"""The recorded terminal output of a session, as text: lines that scrolled off, numbered from 0, and the last screen.

A record is a folder of parts. Each part is a file of JSON lines named by the number of its first line. When all
parts together are too big, the oldest is deleted. Parts are append-only, so a line keeps its number and its place.
The only writer is the host of the session. Readers skip a torn line (its writer died); the next writer ends it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.paths import write_private
from kasmon.store.event_log import EventLog

PARTS: Final = 4
"""How many parts a record has at most; each may hold an equal share of the size limit."""
SCREEN: Final = "screen.json"
SUFFIX: Final = ".jsonl"


class PrintedLines(msgspec.Struct, frozen=True):
    at: float
    """When they were recorded, in seconds since the epoch."""
    first: int
    lines: tuple[str, ...] = ()
    gap: bool = False
    """Some output before these lines was missed."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PrintedLines).decode


class TerminalRecord:
    """The writer of the record in *folder*: its parts hold at most *limit_bytes*, not counting the screen file."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self._limit_bytes = folder, limit_bytes
        self._last: Path | None = None
        """The part being appended to."""
        self.next: int | None = None
        """The number of the next line; None before `open`."""

    def open(self, tail: int) -> list[str]:
        """Continue an existing record, if any; return its last *tail* lines.

        Raises:
            OSError: if the folder can be neither created nor read.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.next, last = 0, list[str]()
        self._last = None
        for part in parts(self.folder)[-2:]:
            self._last = part
            self.next = int(part.stem)
            for printed in read(part):
                self.next = printed.first + len(printed.lines)
                last = [*([] if printed.gap else last), *printed.lines][-tail:]
        return last

    def append(self, lines: Sequence[str], at: float, *, gap: bool = False) -> None:
        """Append *lines* to the record.

        Raises:
            OSError: if they cannot be written completely; none of them is recorded then.
        """
        assert self.next is not None, "it was not opened"
        line = _encode(PrintedLines(at, self.next, tuple(lines), gap))
        if self._last is None or self._last.stat().st_size + len(line) > self._limit_bytes // PARTS:
            self._last = self.folder / f"{self.next:012d}{SUFFIX}"
        EventLog(self._last).append(line)
        self.next += len(lines)
        self._forget_oldest()

    def show(self, lines: Sequence[str], at: float) -> None:
        """Store *lines* as the screen, replacing the previous one. Raises `OSError` if it cannot be written."""
        assert self.next is not None, "it was not opened"
        write_private(self.folder / SCREEN, _encode(PrintedLines(at, self.next, tuple(lines))))

    def _forget_oldest(self) -> None:
        sizes = [(part, part.stat().st_size) for part in parts(self.folder)]
        total_bytes = sum(size for _, size in sizes)
        for part, size in sizes[:-1]:
            if total_bytes <= self._limit_bytes:
                break
            part.unlink(missing_ok=True)
            total_bytes -= size


def parts(folder: Path) -> list[Path]:
    """Return the parts of the record in *folder*, oldest first; empty if there is no record."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - of thousands of sessions: a Path for each costs more than the call
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names) if name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdecimal()]


def read(part: Path) -> Iterator[PrintedLines]:
    """Yield the content of *part*, oldest first; nothing if it was deleted meanwhile."""
    try:
        content = part.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        if (printed := decode(line)) is not None:
            yield printed


def decode(line: bytes) -> PrintedLines | None:
    """Decode one line of a part; return None if it is torn."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def screen(folder: Path) -> PrintedLines | None:
    """Return the last recorded screen; None if there is none."""
    try:
        return decode((folder / SCREEN).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def everything(folder: Path) -> Iterator[PrintedLines]:
    """Yield everything recorded, oldest first, then the screen."""
    for part in parts(folder):
        yield from read(part)
    if (last := screen(folder)) is not None:
        yield last


def number_lines(printed: Iterable[PrintedLines]) -> Iterator[tuple[int, float, str]]:
    """Yield each line with its number and the time it was recorded."""
    for each in printed:
        for at, line in enumerate(each.lines):
            yield each.first + at, each.at, line


def forget(folder: Path) -> None:
    """Delete the record in *folder*; do nothing if there is none."""
    with contextlib.suppress(FileNotFoundError):
        if folder.is_symlink():
            folder.unlink()
        else:
            import shutil  # only here: commands read records, and it takes 2 ms to load

            shutil.rmtree(folder)
