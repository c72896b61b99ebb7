"""The scripted agent's terminal: switched to raw mode, written to, read from, and restored."""

import contextlib
import os
import select
import signal
import termios
import tty
from types import FrameType, TracebackType
from typing import Self

TAKE = "\x1b[?1049h\x1b[22;0t\x1b[?2004h\x1b[>1u"
"""Alternate screen, saved title, bracketed paste, Shift+Enter distinct from Enter where the terminal supports it."""
GIVE_BACK = "\x1b[<u\x1b[?2004l\x1b[0m\x1b[?25h\x1b[23;0t\x1b[?1049l"
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
DEFAULT_SIZE = (80, 24)


class Hangup(Exception):  # noqa: N818 - no error: the user has closed the terminal
    """The terminal is gone."""


class RawTerminal:
    """Standard input and output, in raw mode inside the context; always restored at its end, except after kill -9."""

    def __init__(self) -> None:
        self.last_words = ""
        """A line that stays on the normal screen after the end."""
        self._in, self._out = 0, 1
        self._wake_read, self._wake_write = os.pipe()

    def __enter__(self) -> Self:
        self._saved_attributes = termios.tcgetattr(self._in)
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda number, frame: None)
        for number in ENDING:
            signal.signal(number, self._handle_signal)
        tty.setraw(self._in, termios.TCSANOW)
        self.write(TAKE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.give_back()
        if isinstance(error, _EndedBySignal):
            kill_self(error.number)
        return isinstance(error, Hangup)

    def give_back(self) -> None:
        """Restore the terminal; idempotent, and silent if it is gone."""
        message = f"{self.last_words}\r\n" if self.last_words else ""
        self.last_words = ""
        with contextlib.suppress(Hangup):
            self.write(GIVE_BACK + message)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, self._saved_attributes)

    def greet(self) -> None:
        """Draw a first screen before the program is loaded."""
        self.write(f"\x1b[2J\x1b[Hscripted agent\x1b[{self.size()[1]};1H❯ ")

    def size(self) -> tuple[int, int]:
        """Return columns and rows; 80 x 24 if the terminal does not report them."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return DEFAULT_SIZE
        return (columns, rows) if columns and rows else DEFAULT_SIZE

    def write(self, text: str) -> None:
        """Write all of *text*. Raises `Hangup` if the terminal is gone."""
        data = memoryview(text.encode("utf-8", "replace"))
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            raise Hangup from error

    def read(self, limit_s: float | None) -> bytes:
        """Return typed input; empty after *limit_s* seconds, or when the terminal's size changed.

        Raises:
            Hangup: if the terminal is gone.
        """
        ready, _, _ = select.select([self._in, self._wake_read], [], [], limit_s)
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._in not in ready:
            return b""
        try:
            typed = os.read(self._in, 1 << 16)
        except OSError as error:
            raise Hangup from error
        if not typed:
            raise Hangup
        return typed

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the restore
        raise _EndedBySignal(number)


class _EndedBySignal(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


def kill_self(number: int) -> None:
    """End this process by signal *number*, so that its parent sees that signal as the cause."""
    with contextlib.suppress(OSError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
