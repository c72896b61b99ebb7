"""A kasmon of a test's own, driven through its command line by real processes."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from kasmon.demo.scratch import clear
from kasmon.paths import Paths, user_paths
from tests.support.cli.fork_server import KASMON, OF_PYTHON, Command, ForkServer
from tests.support.wait import until

LIMIT_S = 100.0
Awaited = str | Callable[[], bool]
"""Text that a terminal has to show, or anything else that has to be true, before something is typed."""
LONG = frozenset({"bench", "demo", "host"})
"""Commands that are a program of their own; they get a Python of their own."""


class Done(msgspec.Struct, frozen=True):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object on stdout; its only line, and ASCII."""
        assert self.out.isascii()
        [line] = self.out.splitlines()
        return json.loads(line)


class Cli:
    """Runs commands in a home of its own; `close` ends every process that they started.

    Attributes:
        folder: where the commands run; first the home.
    """

    def __init__(self, fork_server: ForkServer | None = None) -> None:
        """*fork_server*: runs commands that need no Python of their own; else each has one."""
        self.limit_s = LIMIT_S
        self._fork_server = fork_server
        self.home = self.folder = Path(mkdtemp(prefix="kasmon-cli-"))
        for name in ("s", "r", "c"):
            (self.home / name).mkdir(mode=0o700)
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "KASMON_TMUX") if name in os.environ}
        self.environment = kept | {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "s"),
            "XDG_RUNTIME_DIR": str(self.home / "r"),
            "XDG_CONFIG_HOME": str(self.home / "c"),
            "PYTHONUTF8": "1",
        }
        self.paths: Paths = user_paths(self.environment)

    def __call__(self, *arguments: str, given: str = "", **variables: str) -> Done:
        if self._fork_server is not None and not self._needs_python(arguments, variables):
            return Done(
                *self._fork_server.run(arguments, self.environment | variables, self.folder, given, self.limit_s)
            )
        done = subprocess.run(
            [*KASMON, *arguments],
            input=given,
            capture_output=True,
            text=True,
            env=self.environment | variables,
            cwd=self.folder,
            timeout=self.limit_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def _needs_python(self, arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
        return not LONG.isdisjoint(arguments[:1]) or any(name.startswith(OF_PYTHON) for name in variables)

    def json(self, *arguments: str, given: str = "") -> Any:
        """What a command that succeeds prints with --json."""
        done = self(*arguments, "--json", given=given)
        assert 0 == done.code, done.err
        return done.json

    def new(self, name: str, script: str = "", *more: str) -> str:
        """Start a structured scripted session; return its id."""
        done = self("new", name, "--agent", "scripted", "--mode", "sdk", "--prompt", script, *more)
        assert 0 == done.code, done.err
        return done.out.strip()

    def request(self) -> Any:
        """The only request that waits, as soon as there is one."""
        [request] = until(lambda: self.json("inbox")["requests"], LIMIT_S)
        return request

    def terminal(self, *arguments: str, typed: Sequence[tuple[Awaited, str]] = (), **variables: str) -> tuple[int, str]:
        """Run a command on a terminal; each of *typed* is text to await and what to type then. Exit code and output."""
        environment = self.environment | {"TERM": "xterm-256color"} | variables
        fork_server = None if self._needs_python(arguments, variables) else self._fork_server
        return on_terminal([*KASMON, *arguments], environment, self.folder, typed, fork_server)

    def close(self) -> None:
        clear(self.home)


def _is_there(awaited: Awaited, output: bytes) -> bool:
    return awaited.encode() in output if isinstance(awaited, str) else awaited()


def _at_a_terminal() -> None:
    """In the child: the pty is its terminal, and Ctrl+C a signal there, also where we were started with it ignored."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_terminal(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    typed: Sequence[tuple[Awaited, str]] = (),
    fork_server: ForkServer | None = None,
) -> tuple[int, str]:
    """Run *argv* on a pty of 120x40 without echo; its exit code, and every character it sent there.

    What is *typed* after no text is typed before it starts.
    *fork_server*: runs *argv*, which is a command of kasmon.
    """
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (40, 120))
    modes = termios.tcgetattr(inner)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(inner, termios.TCSANOW, modes)
    waiting = list(typed)
    while waiting and waiting[0][0] == "":
        os.write(outer, waiting.pop(0)[1].encode())
    child: subprocess.Popen[bytes] | Command
    if fork_server:
        child = fork_server.start(argv[len(KASMON) :], environment, folder, [inner] * 3, "terminal")
    else:
        child = subprocess.Popen(
            argv,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            preexec_fn=_at_a_terminal,
        )
    os.close(inner)
    output, over, deadline = b"", False, time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            if select.select([outer], [], [], 0.05)[0]:
                try:
                    piece = os.read(outer, 65536)
                except OSError:  # the last of them has closed its end
                    over = True
                    break
                output += piece
            if waiting and _is_there(waiting[0][0], output):
                os.write(outer, waiting.pop(0)[1].encode())
        text = output.decode("utf-8", "surrogateescape")
        assert not waiting, f"{argv} never came to {waiting[0][0]}: {text[-3000:]!a}"
        assert over, f"{argv} did not end: {text[-3000:]!a}"
        return child.wait(LIMIT_S), text
    finally:
        os.close(outer)
        if child.returncode is None:
            child.kill()
            child.wait()
