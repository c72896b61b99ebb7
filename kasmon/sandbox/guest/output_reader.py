"""What a process says on stdout and stderr: heard as it comes, and to its end when it says that it is done."""

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
    """A pipe for each stream; the same for each process that is started after another, so that what one left behind may
    go on speaking."""

    def __init__(self, loop: EventLoop, heard: Callable[[str, bytes], None]) -> None:
        self._loop, self._tell = loop, heard
        self._ends: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Listen, from the first time on."""
        for stream in STREAMS if not self._ends else ():
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            self._ends[stream] = ours, theirs
            self._loop.watch(ours, functools.partial(self._hear, stream))

    def theirs(self, stream: str) -> int:
        """The file into which is spoken."""
        return self._ends[stream][1]

    def hear_all(self) -> None:
        """What is said already, and not what somebody goes on to say."""
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
