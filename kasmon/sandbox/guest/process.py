"""A program for a client outside, on its own terminal or on pipes: its output, its input, and its end.

Where no client reads its output, it blocks, as on a full pipe.

A broken connection neither loses nor repeats data: a client that reconnects sends its offset and gets the rest.
"""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable, Mapping
from typing import NoReturn

from kasmon.sandbox.guest.children import DEFAULT, end_family, end_members
from kasmon.sandbox.guest.event_loop import READABLE, WRITABLE, EventLoop


class OutputBuffer:
    """Output: *begin* is the offset of the first byte still stored, *end* that of the next one to come."""

    def __init__(self) -> None:
        self.begin, self._kept = 0, bytearray()
        self.is_over = False
        """The stream has ended."""

    @property
    def end(self) -> int:
        return self.begin + len(self._kept)

    @property
    def held(self) -> int:
        """How many bytes are stored."""
        return len(self._kept)

    def add(self, data: bytes) -> None:
        self._kept += data

    def forget(self, to: int) -> None:
        """Drop all bytes before offset *to*: the client has them."""
        to = min(max(to, self.begin), self.end)
        del self._kept[: to - self.begin]
        self.begin = to

    def since(self, at: int, most: int) -> bytes:
        """Return at most *most* bytes from offset *at*, which must not be before *begin*."""
        return bytes(self._kept[at - self.begin : at - self.begin + most])


class InputBuffer:
    """Input: each byte is accepted once, and stored until the process reads it."""

    def __init__(self) -> None:
        self.end = 0
        """How many bytes were ever accepted."""
        self.waiting = bytearray()
        """Data that the process has not read yet."""
        self.is_over = False
        """No more data follows; the process gets EOF once it has read all."""

    def accept(self, at: int, data: bytes) -> None:
        """Accept *data* from offset *at*, but no byte twice. Raises `ValueError` if bytes before *at* are missing."""
        if at > self.end:
            raise ValueError(f"bytes {self.end} to {at} are missing")
        new = data[self.end - at :]
        self.waiting += new
        self.end += len(new)


BLOCK_BYTES = 1 << 15
HELD_BYTES = 1 << 18
"""So much of a stream is buffered; then the process blocks."""
LAST_BLOCKS = 64
"""So many blocks of remaining output are read when a process has ended."""
NOT_FOUND, NOT_ALLOWED = 127, 126
TAKEN = "taken"
Size = tuple[int, int]
"""Columns and rows of a terminal."""


class GuestProcess:
    """Started by the constructor.

    *on_change* is called with the name of a stream that has new data, with `TAKEN` when the process read from its
    input, and with "" when it ended.

    Raises:
        OSError: if the program cannot be started.
    """

    def __init__(
        self,
        loop: EventLoop,
        argv: list[str],
        variables: Mapping[str, str],
        workdir: str,
        size: Size | None,
        on_change: Callable[[str], None],
    ) -> None:
        self._loop, self._on_change = loop, on_change
        self.stdin = InputBuffer()
        self.streams = {name: OutputBuffer() for name in (("out",) if size else ("out", "err"))}
        self._files: dict[str, int] = {}
        self._input = -1
        self.code: int | None = None
        """Its exit code; a signal is negative. None while it runs."""
        self._is_terminal = size is not None
        files, theirs = self._terminal(size) if size else self._pipes()
        try:
            self.pid = _start(argv, variables, workdir, files, is_terminal=self._is_terminal)
        except OSError:
            for file in {self._input, *self._files.values()}:
                os.close(file)
            raise
        finally:
            for file in theirs:
                os.close(file)
        self.session = self.pid
        for name in self.streams:
            os.set_blocking(self._files[name], False)
        os.set_blocking(self._input, False)
        self._attend()

    def _terminal(self, size: Size) -> tuple[list[int], list[int]]:
        ours, theirs = os.openpty()
        self._files["out"] = self._input = ours
        self._set_size(size)
        return [theirs] * 3, [theirs]

    def _pipes(self) -> tuple[list[int], list[int]]:
        stdin, self._input = os.pipe()
        self._files["out"], stdout = os.pipe()
        self._files["err"], stderr = os.pipe()
        return [stdin, stdout, stderr], [stdin, stdout, stderr]

    # Output.

    def acknowledge(self, stream: str, to: int) -> None:
        """Drop *stream* before offset *to*, which the client has; a process that blocked on that continues."""
        self.streams[stream].forget(to)
        self._attend()

    def _attend(self) -> None:
        """Watch the streams whose buffers have space, and the input while data waits for it."""
        wanted: dict[int, int] = {}
        for name, file in self._files.items():
            if not self.streams[name].is_over and self.streams[name].held < HELD_BYTES:
                wanted[file] = READABLE
        if self._input >= 0 and self.stdin.waiting:
            wanted[self._input] = wanted.get(self._input, 0) | WRITABLE
        for file in {*self._files.values(), self._input} - {-1}:
            if file in wanted:
                self._loop.watch(file, self._handle_ready, wanted[file])
            else:
                self._loop.forget(file)

    def _handle_ready(self) -> None:
        self._write()
        for name in self.streams:
            if self.streams[name].held < HELD_BYTES:
                self._read_stream(name)
        self._attend()

    def _read_stream(self, name: str) -> bool:
        """Read pending data of *name*; return whether there was any."""
        stream = self.streams[name]
        if stream.is_over:
            return False
        try:
            data = os.read(self._files[name], BLOCK_BYTES)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return False
            data = b""  # a terminal that no process has open any more
        if not data:
            stream.is_over = True
            return False
        stream.add(data)
        self._on_change(name)
        return True

    # Input.

    def write_input(self, at: int, data: bytes) -> None:
        """Send it *data*, which starts at offset *at*. Raises `ValueError` if bytes before *at* are missing."""
        self.stdin.accept(at, data)
        self._write()
        self._attend()

    def close(self) -> None:
        """Close its stdin once all data was read; a terminal stays open."""
        self.stdin.is_over = True
        self._write()
        self._attend()

    def _write(self) -> None:
        waiting, before = self.stdin.waiting, len(self.stdin.waiting)
        try:
            while waiting and self._input >= 0:
                del waiting[: os.write(self._input, waiting[:BLOCK_BYTES])]
        except BlockingIOError:
            if len(waiting) < before:
                self._on_change(TAKEN)
            return
        except OSError:
            waiting.clear()  # it closed its stdin
        if before:
            self._on_change(TAKEN)
        if self.stdin.is_over and not self._is_terminal and self._input >= 0:
            self._loop.forget(self._input)
            os.close(self._input)
            self._input = -1

    # Control.

    def resize(self, size: Size) -> None:
        if self._is_terminal:
            self._set_size(size)

    def signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid or self.session, number)

    def _set_size(self, size: Size) -> None:
        columns, rows = size
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # Its end.

    def handle_exit(self, status: int) -> None:
        self.pid, self.code = 0, os.waitstatus_to_exitcode(status)
        for name in self.streams:
            left = LAST_BLOCKS
            while left and self._read_stream(name):
                left -= 1
            self.streams[name].is_over = True
        self._attend()
        self._on_change("")

    def end(self) -> None:
        """End it with all in its session, and close its files. Idempotent."""
        if self.pid:
            end_family(self.pid)
        end_members(self.session)
        for file in {*self._files.values(), self._input} - {-1}:
            self._loop.forget(file)
            os.close(file)
        self._files, self._input = {}, -1
        if self.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid, self.code = 0, -signal.SIGKILL


def _start(argv: list[str], variables: Mapping[str, str], workdir: str, files: list[int], *, is_terminal: bool) -> int:
    """Start *argv* on *files* as the leader of a session, with that terminal; return its pid. Raises `OSError`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, variables, workdir, files, writer, is_terminal=is_terminal)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123
        why = file.read()
    if why:
        os.waitpid(pid, 0)
        number = int(why.partition(b" ")[0])
        raise OSError(number, os.strerror(number), why.partition(b" ")[2].decode("utf-8", "replace"))
    return pid


def _become(
    argv: list[str], variables: Mapping[str, str], workdir: str, files: list[int], tells: int, *, is_terminal: bool
) -> NoReturn:
    what = argv[0]
    try:
        os.setsid()
        if is_terminal:
            fcntl.ioctl(files[0], termios.TIOCSCTTY, 0)
        for number, file in enumerate(files):
            os.dup2(file, number)
        for each in (*DEFAULT, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        what = workdir
        os.chdir(workdir)
        what = argv[0]
        os.execvpe(argv[0], argv, variables)
    except OSError as error:
        os.write(tells, f"{error.errno or errno.EIO} {what}".encode())
    finally:
        os._exit(NOT_FOUND)
