"""The stdio proxy: carries stdin, stdout and terminal of an agent in a sandbox that is reached over a connection.

    python -P -m kasmon.sandbox.remote_guest.stdio_proxy FILE        FILE holds `RemoteLaunchSpec`, and is removed

It creates the sandbox, or attaches to a running or paused one, and starts the agent in it. It lives as long as the
agent: if the connection breaks because the sandbox is paused to disk, it waits and then continues. Input meanwhile is
kept. It exits as the agent does, and removes the sandbox then.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from kasmon.errors import KasmonError, SandboxUnreachableError
from kasmon.paths import user_paths
from kasmon.sandbox.remote_guest import launch_spec
from kasmon.sandbox.remote_guest.attach import GuestAttachment, NoSuchRunError, ProcessStream, attach
from kasmon.sandbox.remote_guest.launch_spec import RemoteAgentStatus, RemoteLaunchSpec

CANNOT: Final = 125
LOST: Final = 1
LOOK_S: Final = 0.1
"""How often it tries to reconnect."""
CURRENT_S: Final = 1.0
"""How often it checks whether the context inside must be updated."""
GONE_S: Final = 5.0
"""An unpaused sandbox that is unreachable for so long may be gone."""
NUDGE_S: Final = 1.0
LEAVE_S: Final = 3.0
"""How long the agent may take to end once its terminal is gone."""
BLOCK_BYTES: Final = 1 << 16
CLEAR: Final = b"\x1b[H\x1b[2J"
CARRIED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

NOTE_BYTES: Final = 8192
NOTE_FILE_BYTES: Final = 1 << 20
"""An unread file does not grow beyond this."""


class NoteRelay:
    """*marks*: generation and nonce that the agent was started with, possibly by an earlier stdio proxy."""

    def __init__(self, spec: RemoteLaunchSpec, marks: tuple[str, str]) -> None:
        self._path, self._were, self._are = spec.notes, marks, spec.marks
        self._rest = b""

    def relay(self, data: bytes) -> None:
        """Relay each line that *data* completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= NOTE_BYTES else b""
        for line in lines:
            if self._path and len(line) <= NOTE_BYTES:
                with contextlib.suppress(OSError):
                    self._put(self._marked(line) + b"\n")

    def _marked(self, line: bytes) -> bytes:
        """Return *line* with the present marks, if it has those that its agent was started with."""
        if self._were == self._are:
            return line
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            note = msgspec.json.decode(line)
            if isinstance(note, dict) and (note.get("generation"), note.get("nonce")) == self._were:
                return msgspec.json.encode(note | dict(zip(("generation", "nonce"), self._are, strict=True)))
        return line

    def _put(self, line: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size + len(line) <= NOTE_FILE_BYTES:
                os.write(file, line)
        finally:
            os.close(file)


class StdioProxy:
    """Carries bytes between its own stdin, stdout and terminal and the agent of *spec* in its sandbox."""

    def __init__(self, spec: RemoteLaunchSpec, attachment: GuestAttachment) -> None:
        self._spec, self._attachment = spec, attachment
        self._session_folder = Path(spec.session_folder)
        self._is_terminal = os.isatty(0)
        self._note_relay = NoteRelay(spec, attachment.marks)
        self._stream = ProcessStream(attachment.run, self._write_output)
        self._is_open = True
        self._lost_at = 0.0
        self._leave_at: float | None = None
        self._is_to_draw = attachment.is_running
        self._resize_at: float | None = None
        self._context: bytes = attachment.context
        self._looked_at = time.monotonic()
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._signals: list[int] = []
        for each in (*CARRIED, signal.SIGWINCH):
            signal.signal(each, self._record_signal)

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    @property
    def is_over(self) -> bool:
        """Whether the agent has ended, or is to end since its terminal is gone."""
        return self._stream.code is not None or (self._leave_at is not None and self._stream.is_joined)

    def run(self) -> int:
        """Carry until the agent has ended; return its exit code."""
        self._connect()
        while self._stream.code is None:
            if self._leave_at is not None and time.monotonic() > self._leave_at:
                return 128 + signal.SIGHUP
            if (over := self._handle_signals()) is not None:
                return over
            if not self._stream.is_joined and self._stream.fileno() < 0:
                if not self._reconnect():
                    return LOST
            else:
                self._update_context()
            if self._stream.is_joined:
                self._lost_at = 0.0
            self._force_redraw()
            self._wait()
        return self._stream.code

    def _wait(self) -> None:
        """Wait for data or a short timeout, and carry what there is."""
        watched = select.poll()
        watched.register(self._woken, select.POLLIN)
        line = self._stream.fileno()
        if line >= 0:
            watched.register(line, select.POLLIN)
        if self._is_open and self._stream.has_room:
            watched.register(0, select.POLLIN)
        is_soon = line < 0 or self._resize_at is not None
        for file, _ in watched.poll((LOOK_S if is_soon else CURRENT_S) * 1000):
            if file == self._woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
            elif file == line:
                self._stream.read()
            elif file == 0:
                self._read_stdin()

    def _read_stdin(self) -> None:
        try:
            data = os.read(0, BLOCK_BYTES)
        except OSError:
            data = b""
        if data:
            self._stream.write(data)
            return
        self._is_open = False
        if self._is_terminal:
            self._hang_up()
        else:
            self._stream.close()

    def _hang_up(self) -> None:
        """End the agent, since its output is not read any more, unless it is paused."""
        self._is_open = False
        if self._leave_at is None:
            self._leave_at = time.monotonic() + (LEAVE_S if self._stream.is_joined else 0.0)
            self._stream.ask("process_signal", number=int(signal.SIGHUP))

    def _handle_signals(self) -> int | None:
        """Pass on received signals; return the proxy's own exit code if one ends it."""
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGWINCH:
                self._resize()
            elif number == signal.SIGHUP:
                self._hang_up()
            elif self._stream.is_joined:
                self._stream.ask("process_signal", number=number)
            else:
                return -number
        if (
            not self._is_open
            and not self._is_terminal
            and not self._stream.is_joined
            and launch_spec.is_waiting(self._session_folder)
        ):
            return LOST  # its host is gone; the next one finds the paused sandbox
        return None

    def _write_output(self, stream: str, data: bytes) -> None:
        if stream == "notes":
            self._note_relay.relay(data)
            return
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(2 if stream == "err" else 1, left) :]
        except OSError:  # the reader is gone
            self._hang_up()

    # The connection.

    def _connect(self) -> None:
        self._stream.connect(self._attachment.runtime.socket)
        self._lost_at = time.monotonic()

    def _reconnect(self) -> bool:
        """Try to reconnect; return false once the sandbox has ended."""
        now = time.monotonic()
        self._lost_at = self._lost_at or now
        if launch_spec.is_waiting(self._session_folder):
            self._lost_at = now
        elif now - self._lost_at > GONE_S:
            self._lost_at = now
            if not self._is_there():
                _print_error("kasmon: the sandbox and its processes have ended.")
                return False
        if self._stream.connect(self._attachment.runtime.socket) and not self._is_to_draw:
            self._resize()
        return True

    def _is_there(self) -> bool:
        """Whether the sandbox is alive, or its state is unknown now; records its new address."""
        try:
            runtime = self._attachment.tier.adopt(self._spec.policy)
            if runtime is not None and (known := launch_spec.load_status(self._session_folder)) is not None:
                launch_spec.store_status(self._session_folder, msgspec.structs.replace(known, runtime=runtime))
        except SandboxUnreachableError:
            return True
        except (KasmonError, OSError):
            return False
        return runtime is not None

    def _force_redraw(self) -> None:
        """Make the agent redraw a screen that was drawn on another terminal, by a resize that lasts a moment."""
        now = time.monotonic()
        if self._is_to_draw and self._stream.is_joined:
            self._is_to_draw, self._resize_at = False, now + NUDGE_S
            self._resize(less=1)
        elif self._resize_at is not None and now > self._resize_at:
            self._resize_at = None
            self._resize()

    def _resize(self, *, less: int = 0) -> None:
        """Send the terminal's size, reduced by *less* rows."""
        if not self._is_terminal:
            return
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(0)
            self._stream.ask("process_resize", columns=columns, rows=max(1, rows - less))

    def _update_context(self) -> None:
        now = time.monotonic()
        if self._spec.context and self._stream.is_joined and now - self._looked_at >= CURRENT_S:
            self._looked_at = now
            with contextlib.suppress(OSError):
                content = Path(self._spec.context).read_bytes()
                if content != self._context:
                    self._context = content
                    self._stream.ask(
                        "write_volatile", **launch_spec.build_file_request(launch_spec.CONTEXT, content, 0o644)
                    )


def main(path: str) -> int:
    """Run the stdio proxy of the file at *path*; return its exit code, where a signal is negative."""
    try:
        spec = msgspec.json.decode(Path(path).read_bytes(), type=RemoteLaunchSpec)
        Path(path).unlink()
    except (OSError, msgspec.MsgspecError) as error:
        _print_error(f"kasmon: the sandbox cannot be entered: {error}. Nothing was started.")
        return CANNOT
    os.environ.update(spec.environment)
    session_folder, is_terminal = Path(spec.session_folder), os.isatty(0)
    if is_terminal:
        _print_error(f"kasmon: creating a sandbox ({spec.policy.tier}).")
    try:
        tier = launch_spec.load_agent_tier(user_paths(), spec.policy)
        attachment = attach(tier, spec, os.get_terminal_size(0) if is_terminal else None)
    except (KasmonError, OSError) as error:
        _print_error(f"kasmon: {' '.join((getattr(error, 'message', str(error)), getattr(error, 'hint', ''))).strip()}")
        return getattr(error, "status", CANNOT)
    with _raw_terminal(is_terminal):
        front = StdioProxy(spec, attachment)
        status = RemoteAgentStatus(
            run=attachment.run,
            front=os.getpid(),
            runtime=attachment.runtime,
            notices=attachment.notices,
            marks=attachment.marks,
            lost=attachment.lost,
        )
        launch_spec.store_status(session_folder, status)
        try:
            how = front.run()
        except NoSuchRunError:
            _print_error("kasmon: the sandbox has no process of this session any more.")
            how = LOST
    if front.is_over:
        with contextlib.suppress(KasmonError, OSError):
            tier.destroy(spec.policy, attachment.runtime)
    return how


@contextlib.contextmanager
def _raw_terminal(is_terminal: bool):  # type: ignore[no-untyped-def]
    if not is_terminal:
        yield
        return
    was = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSANOW)
    os.write(1, CLEAR)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, was)


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\r\n".encode())


def exit_with(how: int) -> None:
    """Exit with code *how*; a negative one is a signal."""
    if how < 0:
        signal.signal(-how, signal.SIG_DFL)
        os.kill(os.getpid(), -how)
    sys.exit(how)


if __name__ == "__main__":
    exit_with(main(sys.argv[1]))
