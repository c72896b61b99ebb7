"""Textual's driver with a tap on stdin: while a terminal has the focus, bytes bypass Textual's parser.

It relies on Textual 8.2. Besides the tap, it fixes five problems: a lost terminal is reported once without a busy loop
(textual#6690); leaving and suspending need no wait of 0.2 s; a SIGTSTP during a paint does not deadlock; SIGCONT
restores the whole picture, however often it comes; and output is dropped while another program has the terminal. In
Textual that output fills a queue that is not read, and when it is full the app hangs for ever.

Every terminal without a newer protocol sends Alt+Enter as ESC and a return; Textual 8.2 drops the Alt. And with xterm's
own numbers (`CSI 27`, as from a tmux with extended keys), it names Enter by its character.

Python's own file writes a large piece in several calls, and after each the writing thread waits up to 5 ms for its turn
behind the drawing one: 15 ms for a whole screen.
"""

import asyncio
import contextlib
import io
import os
import select
import signal
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from kasmon.tui.process import terminal_guard
from kasmon.tui.terminal.background import QUERY, BackgroundReply

if TYPE_CHECKING:
    from kasmon.tui.terminal.clipboard import ClipboardReply
    from kasmon.tui.terminal.stdin_tap import StdinTap

import re
from collections.abc import Iterable
from typing import TextIO

from textual import events


class TerminalOutput:
    """Replaces the terminal's file in Textual's writing thread. Not thread-safe."""

    def __init__(self, file: TextIO) -> None:
        """Flush *file* first. A character that its encoding lacks is written as `?`."""
        file.flush()
        self._handle, self._encoding = file.fileno(), file.encoding

    def write(self, text: str) -> None:
        """Write all of *text*. Raises `OSError` if the terminal is gone."""
        left = memoryview(text.encode(self._encoding, "replace"))
        while left:
            written = 0
            with contextlib.suppress(BlockingIOError):  # another user of this terminal may have made it non-blocking
                written = os.write(self._handle, left)
            left = left[written:]
            if left and not written:
                select.select([], [self._handle], [])

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)


_XTERM_ENTER: Final = re.compile(r"\x1b\[27;(\d+);13~")


class KeyParser(XTermParser):
    """Distinguishes Alt+Enter and modified Enter, which insert a new line, from Enter, which sends."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if alt and sequence == "\r":
            yield events.Key("alt+enter", None)
        else:
            yield from super()._sequence_to_key_events(_XTERM_ENTER.sub("\x1b[13;\\1u", sequence), alt)


LEGACY_KEYBOARD: Final = "\x1b[>0u"
"""Selects legacy keys: the pane's program has requested nothing else of this terminal."""
POP_KEYBOARD: Final = "\x1b[<u"
TMUX_KEYBOARD, POP_TMUX_KEYBOARD = "\x1b[>4;1m", "\x1b[>4;0m"
"""A surrounding tmux sends Shift+Enter and similar keys only if asked, and supports no other protocol."""
READ_BYTES: Final = 16 * 1024
LONGEST_WAIT_S: Final = 1.0
SUSPEND_S: Final = 1.0
"""How long a stop by SIGTSTP waits for `on_suspend`."""


class _WakingEvent(threading.Event):
    """An event that also writes to a pipe when set, so that a reader of bytes need not poll."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        os.set_blocking(pipe, False)
        self._pipe = pipe

    def set(self) -> None:
        super().set()
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe, b"!")


class TapDriver(LinuxDriver):
    """Textual's own driver until `open_tap`, and again after `close_tap`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_hangup: Callable[[], object] | None = None
        """Called on the app's loop when the terminal is gone; without it, the app exits with 129."""
        self.on_suspend: Callable[[], object] = lambda: None
        """Called in a thread before SIGTSTP stops the process."""
        self.on_background: Callable[[bool], object] = lambda _: None
        """Called on the app's loop when the terminal has replied whether its background is light."""
        self.background = BackgroundReply()
        self._clipboard: ClipboardReply | None = None
        """None until a picture was asked for."""
        self._on_clipboard: Callable[[bytes, str], object] | None = None
        self._suspending: asyncio.Task[None] | None = None
        self.gone = False
        """The terminal can no longer be written to."""
        self._tap: StdinTap | None = None
        self._legacy = False
        self._is_suspended = False
        self._wake_read, wake = os.pipe()
        self.exit_event = _WakingEvent(wake)
        if isinstance(self._file, io.TextIOWrapper):
            self._file = TerminalOutput(self._file)  # type: ignore[assignment]  # Textual's thread only writes and flushes

    def open_tap(self, tap: "StdinTap") -> None:
        """Send stdin's bytes to *tap* from the next read on. Call it, and later `close_tap`, on the app's loop."""
        self._tap = tap
        self._set_legacy(True)

    def close_tap(self, tap: "StdinTap") -> None:
        """Undo `open_tap`; does nothing if another tap is open."""
        if self._tap is tap:
            self._tap = None
            self._set_legacy(False)

    def read_clipboard(self, on_reply: Callable[[bytes, str], object]) -> None:
        """Ask the terminal for the picture in its clipboard.

        *on_reply* is called on the app's loop, with the picture, or with nothing and the reason. It is not called if
        the terminal does not reply, or was asked again meanwhile. While a reply is being read, nothing is asked.
        """
        from kasmon.tui.terminal.clipboard import ClipboardReply  # rarely needed

        reply = self._clipboard or ClipboardReply()
        if reply.is_reading:
            return
        self._clipboard, self._on_clipboard = reply, on_reply
        self.write(reply.expect())
        self.flush()

    def _set_legacy(self, wanted: bool) -> None:
        if wanted is not self._legacy:
            self._legacy = wanted
            self.write(LEGACY_KEYBOARD if wanted else POP_KEYBOARD)
            if os.environ.get("TMUX"):
                self.write(TMUX_KEYBOARD if wanted else POP_TMUX_KEYBOARD)
            self.flush()

    def write(self, data: str) -> None:
        if not self.gone and not self._is_suspended:
            super().write(data)

    def start_application_mode(self) -> None:
        self._is_suspended = False
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(QUERY)
        if self._tap is not None:
            self._set_legacy(True)

    def stop_application_mode(self) -> None:
        self._set_legacy(False)
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        super().suspend_application_mode()
        self._is_suspended = True

    def _sigtstp_application(self, *_: object) -> None:
        self._call_soon(self._suspend)

    def _sigcont_application(self, *_: object) -> None:
        self._call_soon(self._resume)

    def _call_soon(self, call: Callable[[], object]) -> None:
        """Call on the app's loop: a signal may arrive while the lock is held that terminal output needs."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the dashboard has ended
            self._loop.call_soon_threadsafe(call)

    def _suspend(self) -> None:
        if self._suspending is None or self._suspending.done():
            self._suspending = asyncio.create_task(self._prepare_stop())

    async def _prepare_stop(self) -> None:
        with contextlib.suppress(TimeoutError):  # as on a disk that hangs
            async with asyncio.timeout(SUSPEND_S):
                await asyncio.to_thread(self.on_suspend)
        self._stop()

    def _stop(self) -> None:
        if self._auto_restart and self._writer_thread is not None:
            self.suspend_application_mode()
            self._must_signal_resume = True
        terminal_guard.wake()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self) -> None:
        """Restore the terminal's modes, which may have changed during a stop."""
        if not self._auto_restart or self._writer_thread is None:
            return
        if not self._is_suspended:
            self.suspend_application_mode()
        self.resume_application_mode()
        self._app.call_later(self._app.refresh, layout=True)

    def hang_up(self) -> None:
        """Stop writing because the terminal is gone, and report it once. Safe on any thread."""
        if not self.gone:
            self.gone = True
            self._call_soon(self.on_hangup or self._leave)

    def _leave(self) -> None:
        self._app.exit(return_code=128 + signal.SIGHUP)

    def is_hung_up(self) -> bool:
        """Whether the terminal's other end is closed."""
        if not self.input_tty:
            return False
        try:
            termios.tcgetattr(self.fileno)
        except termios.error:
            return True
        return False

    def run_input_thread(self) -> None:
        """Read until told to stop; what no tap takes goes through Textual's parser, as in Textual."""
        parser = KeyParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        settle_at: float | None = None
        try:
            while True:
                ready = self._wait(parser, settle_at)
                if self.exit_event.is_set():
                    break
                tap, data = self._tap, b""
                is_due = settle_at is not None and time.monotonic() >= settle_at
                if ready:
                    read = self._read()
                    if read is None:
                        continue
                    if not read:
                        break
                    data = self._remove_replies(read)
                elif is_due and self._held_by_replies() is not None:
                    data = self._settle_replies()
                elif is_due and tap is not None:
                    tap.settle()
                if data:
                    if tap is not None:
                        data = self._feed_tap(tap, parser, data)
                    if text := decode(data):
                        for event in parser.feed(text):
                            self.process_message(event)
                if ready or is_due:
                    held = self._held_by_replies() or (tap.hold_s if tap is not None else None)
                    settle_at = None if held is None else time.monotonic() + held
                for event in parser.tick():
                    self.process_message(event)
        finally:
            with contextlib.suppress(EOFError, ParseError):
                for _ in parser.feed(""):
                    pass

    def _wait(self, parser: XTermParser, settle_at: float | None) -> bool:
        """Wait for input or the next deadline; return whether there is input."""
        due = [at for at in (parser._timeout_time, settle_at) if at is not None]
        limit = max(min(due) - time.monotonic(), 0.0) if due else LONGEST_WAIT_S
        readable, _, _ = select.select([self.fileno, self._wake_read], [], [], min(limit, LONGEST_WAIT_S))
        if self._wake_read in readable:
            os.read(self._wake_read, 64)
        return self.fileno in readable

    def _read(self) -> bytes | None:
        """Return the available bytes, or None; empty at the end of input, when the app ends with its terminal."""
        try:
            data = os.read(self.fileno, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data and self.is_hung_up():
            self.hang_up()
        elif not data and self.input_tty:
            self._call_soon(self.on_hangup or self._leave)
        return data

    def _held_by_replies(self) -> float | None:
        """Return how long to wait for the rest of a possible reply, in seconds; None if none is pending."""
        return self.background.hold_s or (self._clipboard.hold_s if self._clipboard is not None else None)

    def _settle_replies(self) -> bytes:
        return self.background.settle() + (self._clipboard.settle() if self._clipboard is not None else b"")

    def _remove_replies(self, data: bytes) -> bytes:
        """Return *data* without the terminal's replies about its clipboard and its background, which are reported."""
        if (reply := self._clipboard) is not None:
            data = reply.feed(data)
            if reply.is_over and (on_reply := self._on_clipboard) is not None:
                self._on_clipboard = None
                self._call_soon(partial(on_reply, reply.picture, reply.problem))
        before = self.background.is_light
        data = self.background.feed(data)
        if (now := self.background.is_light) is not None and now is not before:
            self._call_soon(partial(self.on_background, now))
        return data

    def _feed_tap(self, tap: "StdinTap", parser: XTermParser, data: bytes) -> bytes:
        if parser.mouse_pixels and parser.terminal_size and parser.terminal_pixel_size:
            (columns, rows), (width, height) = parser.terminal_size, parser.terminal_pixel_size
            tap.cell = (max(width / columns, 1.0), max(height / rows, 1.0))
        return tap.feed(data)


def find_tap_driver(app: App[Any]) -> TapDriver | None:
    """Return the driver of *app*; None in a test, which has no terminal."""
    return app._driver if isinstance(app._driver, TapDriver) else None
