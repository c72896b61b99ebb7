"""The end outside of a line that is a process's stdin and stdout: connections to ports inside, and to the way out.

Who comes to its socket says a line first: the number of a port, or `out`, which lets those inside find their proxy from
then on. The process is started when somebody comes, and again where it ended. It stands inside, and ends before the
sandbox's memory is written.
"""

import contextlib
import select
import socket
import subprocess
import threading
import time
from collections.abc import Sequence

from kasmon.sandbox.inside.records import THERE, Records, WrongRecordError, packed
from kasmon.sandbox.inside.ways import OUT, OUTSIDE, Ways, to_gate

BLOCK_BYTES = 1 << 18
END_S = 3.0
SOON_S = 1.0
"""A process that ended sooner is not started again before somebody comes."""


class Carrier:
    """Runs in a thread of its own (`run`); `end` comes from another one."""

    def __init__(self, command: Sequence[str], listening: socket.socket, gate: str) -> None:
        """
        Args:
            command: the process.
            listening: where callers come.
            gate: the path at which the way out listens, if there is one.
        """
        self._command = list(command)
        self._ways = Ways(self._emit, OUTSIDE, lambda where: to_gate(where, gate))
        self._ways.ask(listening, self._asked)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._records, self._left = Records(), bytearray()
        self._leads_out = self._is_out = self._is_over = False
        self._since = 0.0
        self._waiting: list[socket.socket] = []

    def run(self) -> None:
        """Carry until the end of the process that we are."""
        while True:
            self._ways.serve(-1)

    def end(self) -> None:
        """End the process inside, and start none any more."""
        with self._lock:
            self._is_over = True
            if self._line is not None:
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_RDWR)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(END_S)

    def _asked(self, stream: socket.socket, line: str) -> None:
        try:
            self._have_line()
        except OSError as error:
            self._answer(stream, error.strerror or str(error))
            return
        if line != OUT:
            self._ways.call(stream, line)
        elif self._is_out:
            self._answer(stream, "ok")
        else:
            self._waiting.append(stream)
            if not self._leads_out:
                self._leads_out = True
                self._emit(THERE, 0, b"")

    def _have_line(self) -> None:
        with self._lock:
            if self._line is not None or self._is_over:
                return
            self._line, theirs = socket.socketpair()
            with theirs:
                self._child = subprocess.Popen(
                    self._command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
                )
        self._since = time.monotonic()
        self._line.setblocking(False)
        self._records, self._left = Records(), bytearray()
        self._ways.watch(self._line.fileno(), self._ready)
        if self._leads_out:
            self._emit(THERE, 0, b"")

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush()
        if self._line is None or not events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data = self._line.recv(BLOCK_BYTES)
            for kind, channel, content in self._records.feed(data):
                if kind == THERE and not channel:
                    self._is_out = True
                    self._told_out("ok")
                else:
                    self._ways.heard(kind, channel, content)
        except BlockingIOError:
            return
        except (OSError, WrongRecordError, ValueError):
            data = b""
        if not data:
            self._broke()

    def _broke(self) -> None:
        """The process ended: whoever was carried is not any more. Programs inside find their proxy by the next one."""
        if self._line is None:
            return
        with self._lock:
            self._ways.forget(self._line.fileno())
            self._line.close()
            self._line, self._is_out = None, False
        self._ways.part()
        self._told_out("it ended")
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        if self._leads_out and time.monotonic() - self._since > SOON_S:
            with contextlib.suppress(OSError):
                self._have_line()

    def _told_out(self, what: str) -> None:
        waiting, self._waiting = self._waiting, []
        for stream in waiting:
            self._answer(stream, what)

    def _answer(self, stream: socket.socket, what: str) -> None:
        with contextlib.suppress(OSError), stream:
            stream.sendall(what.encode() + b"\n")

    def _emit(self, kind: int, channel: int, content: bytes) -> None:
        if self._line is not None:
            self._left += packed(kind, channel, content)
            self._flush()

    def _flush(self) -> None:
        if self._line is None:
            return
        wanted = select.EPOLLIN
        try:
            while self._left:
                del self._left[: self._line.send(memoryview(self._left)[:BLOCK_BYTES].tobytes())]
        except BlockingIOError:
            wanted |= select.EPOLLOUT
        except OSError:
            return  # its end is heard next
        self._ways.watch(self._line.fileno(), self._ready, wanted)


def led_out(path: str, limit_s: float) -> None:
    """Let programs find their proxy in the sandbox whose carrier listens at *path*; they do when this returns.

    Raises:
        OSError: if they do not within *limit_s*.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(limit_s)
        link.connect(path)
        link.sendall(f"{OUT}\n".encode())
        said = link.makefile("rb").readline()
    if said != b"ok\n":
        raise OSError(said.decode("utf-8", "replace").strip() or "nobody answers")
