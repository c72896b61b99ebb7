"""What a terminal printed, as text: the lines that left its screen, numbered from 0, and the screen as last seen.

A folder of parts, each a file of JSON lines named by the number of its first line; the oldest part goes when all of
them together are too big. A part is only added to, so a line keeps its number and its place for as long as it is there.
One writer: the host of its session. A torn line (its writer died) is skipped by readers and ended by the next writer.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kasmon.paths import open_regular, write_private

PARTS: Final = 4
"""All together hold as much as the limit says; each of so many an equal share of it."""
SCREEN: Final = "screen.json"
SUFFIX: Final = ".jsonl"


class PrintedLines(msgspec.Struct, frozen=True):
    """Lines that were written down together."""

    at: float
    """When, in seconds since the epoch."""
    first: int
    """The number of the first of them."""
    lines: tuple[str, ...] = ()
    gap: bool = False
    """Before them something was printed that nobody saw in time."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PrintedLines).decode


class TerminalRecord:
    """The writer's end of the record in *folder*, which holds *limit_bytes* at most, and its screen beside that."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self._limit_bytes = folder, limit_bytes
        self._last: Path | None = None
        """The part that is added to."""
        self.next: int | None = None
        """The number of the next line; None before `open`."""

    def open(self, tail: int) -> list[str]:
        """Go on where somebody left it; the last *tail* lines of it.

        Raises:
            OSError: if the folder can be neither made nor read.
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
        """Write *lines* down, behind all others.

        Raises:
            OSError: if they could not be written whole; nothing of them is there then.
        """
        assert self.next is not None, "it was not opened"
        line = _encode(PrintedLines(at, self.next, tuple(lines), gap)) + b"\n"
        if self._last is None or self._last.stat().st_size + len(line) > self._limit_bytes // PARTS:
            self._last = self.folder / f"{self.next:012d}{SUFFIX}"
        handle = open_regular(self._last, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW)
        try:
            end = os.lseek(handle, 0, os.SEEK_END)
            if end and os.pread(handle, 1, end - 1) != b"\n":
                line = b"\n" + line
            if os.write(handle, line) < len(line):
                os.ftruncate(handle, end)
                raise OSError(os.strerror(28))
        finally:
            os.close(handle)
        self.next += len(lines)
        self._forget_oldest()

    def show(self, lines: Sequence[str], at: float) -> None:
        """Keep *lines* as the screen, in the place of the one before.

        Raises:
            OSError: if it cannot be written.
        """
        assert self.next is not None, "it was not opened"
        write_private(self.folder / SCREEN, _encode(PrintedLines(at, self.next, tuple(lines))))

    def _forget_oldest(self) -> None:
        sizes = [(part, part.stat().st_size) for part in parts(self.folder)]
        held = sum(size for _, size in sizes)
        for part, size in sizes[:-1]:
            if held <= self._limit_bytes:
                break
            part.unlink(missing_ok=True)
            held -= size


def parts(folder: Path) -> list[Path]:
    """The parts of the record in *folder*, the oldest first; none where there is no record."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - of thousands of sessions: a Path for each costs more than the call
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names) if name.endswith(SUFFIX) and name[: -len(SUFFIX)].isdecimal()]


def read(part: Path) -> Iterator[PrintedLines]:
    """Yield what *part* holds, the oldest first; nothing where it went meanwhile."""
    try:
        content = part.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        if (printed := decode(line)) is not None:
            yield printed


def decode(line: bytes) -> PrintedLines | None:
    """The lines on one line of a part; None where it is torn."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def screen(folder: Path) -> PrintedLines | None:
    """The screen as it was last seen; None where nobody kept one."""
    try:
        return decode((folder / SCREEN).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def everything(folder: Path) -> Iterator[PrintedLines]:
    """Yield all that is recorded, the oldest first, the screen last."""
    for part in parts(folder):
        yield from read(part)
    if (last := screen(folder)) is not None:
        yield last


def numbered(printed: Iterable[PrintedLines]) -> Iterator[tuple[int, float, str]]:
    """Yield each line with its number and when it was written down."""
    for each in printed:
        for at, line in enumerate(each.lines):
            yield each.first + at, each.at, line


def forget(folder: Path) -> None:
    """Delete the record in *folder*; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError):
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
