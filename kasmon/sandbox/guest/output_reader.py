"""Reads stdout and stderr of a process as they arrive, and completely when it reports that it is done."""

import errno
import fcntl
import functools
import os
import struct
import termios
from collections.abc import Callable

from kasmon.sandbox.guest.event_loop import EventLoop
from kasmon.sandbox.guest.turn import STREAMS

BLOCK_BYTES = 1 << 16


class OutputReader:
    """One pipe for each stream; restarted processes get the same pipes, so background jobs of earlier ones can still
    write."""

    def __init__(self, loop: EventLoop, heard: Callable[[str, bytes], None]) -> None:
        self._loop, self._tell = loop, heard
        self._ends: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Create the pipes and watch them, at the first call."""
        for stream in STREAMS if not self._ends else ():
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            self._ends[stream] = ours, theirs
            self._loop.watch(ours, functools.partial(self._hear, stream))

    def theirs(self, stream: str) -> int:
        """Return the write end of *stream*."""
        return self._ends[stream][1]

    def hear_all(self) -> None:
        """Read all data that is in the pipes now, but not what arrives meanwhile."""
        for stream, (ours, _) in self._ends.items():
            left = struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, b"\0\0\0\0"))[0]
            while left > 0 and (heard := self._hear(stream)):
                left -= heard

    def _hear(self, stream: str) -> int:
        try:
            data = os.read(self._ends[stream][0], BLOCK_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
            return 0
        self._tell(stream, data)
        return len(data)
