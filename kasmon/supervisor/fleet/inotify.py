"""What Linux tells of changed files: just what is asked for, and nobody looks for it meanwhile; see inotify(7).

A library that watches whole trees also hears every file that is opened, our own looks among them, and asks a hundred
times a second whether there was anything: with two hundred sessions at rest that was a third of all that was done.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

MODIFY: Final = 0x002
CLOSE_WRITE: Final = 0x008
MOVED_TO: Final = 0x080
CREATE: Final = 0x100
IGNORED: Final = 0x8000
"""What was watched is gone, and so is its watch."""

READ_BYTES: Final = 1 << 16
HEAD: Final = struct.Struct("iIII")


class InotifyEvent(NamedTuple):
    """One thing that happened."""

    watch: int
    """What `add` gave; -1 where something was not told, since there was too much."""
    mask: int
    """Which of the above; others may be set beside it, or instead."""
    name: str
    """The file, in a folder that is watched; else empty."""


class Inotify:
    """Some files and folders. `fileno()` can be read when there is something to `read`; `close` it.

    Raises:
        OSError: if this system has no such thing, or no room for one more.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            self._add, begin = library.inotify_add_watch, library.inotify_init1
        except AttributeError as error:
            raise OSError(errno.ENOSYS, "inotify is unavailable on this system") from error
        self._handle: int = begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise _error("")

    def fileno(self) -> int:
        """What can be read when something was told."""
        return self._handle

    def add(self, path: str, mask: int) -> int:
        """Tell of *mask* at *path* from now on; the number by which it is told.

        Raises:
            OSError: if it is not there, or there are too many watches.
        """
        watch: int = self._add(self._handle, os.fsencode(path), mask)
        if watch < 0:
            raise _error(path)
        return watch

    def read(self) -> Iterator[InotifyEvent]:
        """Yield all that happened and was not read yet; never blocks."""
        while True:
            try:
                data = os.read(self._handle, READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, size = HEAD.unpack_from(data, at)
                name = data[at + HEAD.size : at + HEAD.size + size].rstrip(b"\0")
                yield InotifyEvent(watch, mask, os.fsdecode(name))
                at += HEAD.size + size

    def close(self) -> None:
        """Watch no more. Once."""
        os.close(self._handle)


def _error(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
