"""A program on a terminal of its own: what a person's terminal emulator is to the dashboard."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.cli.fork_server import KASMON, OURS, Command, Kind, of_python
from tests.support.wait import until


class OnTerminal:
    """Runs *argv* on a new pty until the `with` block ends; collects what it writes.

    With *controlling* the program leads a session that the terminal controls, as under `ssh -t`; without, it has the
    terminal for its streams and nothing more, as under `setsid` or `nohup`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        home: Path,
        *,
        environment: Mapping[str, str] | None = None,
        controlling: bool = True,
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        self.seen = b""
        self._closed = False
        self.master, self.terminal = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.terminal)
        variables = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        variables |= {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "STATE", "DATA", "CACHE")}
        variables |= {"XDG_RUNTIME_DIR": str(home / "run"), **(environment or {})}
        self._forked: Command | None = None
        if tuple(argv[: len(KASMON)]) == KASMON and sys.platform == "linux" and not of_python(environment or {}):
            kind: Kind = "terminal" if controlling else "streams"
            self._forked = OURS.start(argv[len(KASMON) :], variables, Path.cwd(), [self.terminal] * 3, kind)
        self.pid = self._forked.pid if self._forked else os.fork()
        if self.pid == 0:
            try:
                self._become(argv, variables, controlling)
            finally:
                os._exit(127)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _become(self, argv: Sequence[str], variables: dict[str, str], controlling: bool) -> None:
        os.setsid()
        if controlling:
            fcntl.ioctl(self.terminal, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(self.terminal, number)
        os.closerange(3, 256)
        os.execve(argv[0], list(argv), variables)

    def _read(self) -> None:
        while not self._closed:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    return

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted: bytes, limit_s: float = 40.0) -> None:
        """Wait until the program wrote *wanted*."""
        until(lambda: wanted in self.seen, limit_s, f"{wanted!r} in {self.seen[-2000:]!r}")

    @property
    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self.terminal))

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.terminal)[3] & termios.ICANON

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        self._closed = True
        self._reader.join()
        os.close(self.terminal)
        os.close(self.master)

    def ended(self, limit_s: float = 40.0) -> int:
        """The program's exit code, once it has ended; minus the signal that ended it."""
        codes: list[int] = []

        def is_over() -> bool:
            if self._forked:
                codes.extend([] if (code := self._forked.poll()) is None else [code])
            elif (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
                codes.append(os.waitstatus_to_exitcode(ended[1]))
            return bool(codes)

        until(is_over, limit_s, f"the end of the program; it wrote {self.seen[-2000:]!r}")
        self.pid = 0
        return codes[0]

    @property
    def is_up(self) -> bool:
        """Whether it still runs."""
        if self._forked:
            return self._forked.poll() is None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            if self._forked:
                self._forked.wait()
            else:
                os.waitpid(self.pid, 0)
        if not self._closed:
            self.hang_up()


def program(name: str, *arguments: str) -> list[str]:
    """The command line of one of `tests.support.tui.programs`."""
    return [sys.executable, "-P", "-m", f"tests.support.tui.programs.{name}", *arguments]
