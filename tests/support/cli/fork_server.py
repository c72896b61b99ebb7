"""Runs kasmon's commands without starting Python for each: one process has kasmon imported, and forks for every one.

A command is a process of its own all the same, with its own arguments, variables, folder, stdin, stdout and stderr. It
takes a tenth of a second less of the processor, and tests of the command line run hundreds of them. The program that
starts a tmux server takes a quarter of a second less, all of it the import of libtmux.

`python -P fork_server.py SOCKET` serves until its stdin is closed, as it is when whoever started it is gone.
"""

import atexit
import contextlib
import fcntl
import gc
import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import NoReturn

TMUX_STARTER = """
import _socket, marshal, os, sys
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
line.connect({socket!r})
request = marshal.dumps(("tmux", sys.argv[1:], dict(os.environ), os.getcwd()))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
line.sendmsg([b"%8d" % len(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
line.sendall(request)
answer = b""
while piece := line.recv(100):
    answer += piece
sys.exit(int(answer.split()[1]))
"""
"""Takes the arguments of `kasmon.tmux.start_server`, and has a fork do its work."""


class ForkServer:
    """The client's side. Starts its process with the first command; `close` ends it."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, given: str, limit_s: float
    ) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `kasmon *arguments`, run in *folder* with *given* on its stdin.

        Raises:
            TimeoutError: if it takes longer than *limit_s* seconds; it is killed then.
        """
        with TemporaryFile() as into, TemporaryFile() as out, TemporaryFile() as err:
            into.write(given.encode())
            into.seek(0)
            command = self.start(arguments, environment, folder, [each.fileno() for each in (into, out, err)])
            try:
                code = command.wait(limit_s)
            except TimeoutError:
                command.kill()
                raise
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return code, texts[0], texts[1]

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        files: Sequence[int],
        *,
        is_terminal: bool = False,
    ) -> "Command":
        """Start `kasmon *arguments` with stdin, stdout and stderr *files*; a terminal then controls it."""
        program = "terminal" if is_terminal else "kasmon"
        request = marshal.dumps((program, list(arguments), dict(environment), str(folder)))
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self._started() / "s"))
        socket.send_fds(line, [b"%8d" % len(request)], list(files))
        line.sendall(request)
        return Command(line)

    def tmux_starter(self) -> str:
        """The path of a program to run in place of `kasmon.tmux.start_server`."""
        return str(self._started() / "start_server.py")

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _started(self) -> Path:
        """The folder with the process's socket."""
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="kf-", dir="/tmp"))
            path = str(self._folder / "s")
            (self._folder / "start_server.py").write_text(TMUX_STARTER.format(socket=path))
            argv = [sys.executable, "-P", __file__, path]
            environment = {**os.environ, "PYTHONUTF8": "1", "HOME": "/"}  # it outlives a test and that one's home
            self._process = subprocess.Popen(
                argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
            )
            assert self._process.stdout is not None
            with self._process.stdout as said:
                assert said.readline(), "the fork server did not start"
        return self._folder


class Command:
    """A command that was started, as `subprocess.Popen` has it."""

    def __init__(self, line: socket.socket) -> None:
        self.returncode: int | None = None
        self._line = line
        self._answers = line.makefile("r")
        self.pid = int(self._answers.readline())

    def wait(self, limit_s: float | None = None) -> int:
        """The exit code.

        Raises:
            TimeoutError: if it still runs after *limit_s* seconds.
        """
        with self._line, self._answers:
            self._line.settimeout(limit_s)
            self.returncode = int(self._answers.readline())
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def serve(path: str) -> NoReturn:
    """Fork for every command that comes in at *path*."""
    import importlib
    import pkgutil

    import libtmux  # noqa: F401  # for `start_server`

    import kasmon.__main__ as entry
    import kasmon.cli
    from kasmon.tmux import start_server

    importlib.import_module("kasmon.cli.app")
    for module in pkgutil.walk_packages(kasmon.cli.__path__, "kasmon.cli."):
        importlib.import_module(module.name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    gc.freeze()  # what is there now is nobody's garbage; a fork that does not touch it shares it
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    running = selectors.DefaultSelector()
    running.register(listener, selectors.EVENT_READ)
    running.register(sys.stdin.fileno(), selectors.EVENT_READ)
    while True:
        for key, _ in running.select():
            if key.fileobj == sys.stdin.fileno():
                os._exit(0)
            if key.fileobj is not listener:
                _ended(running, key)
                continue
            line, _address = listener.accept()
            head, files, _flags, _sender = socket.recv_fds(line, 8, 3)
            program, arguments, environment, folder = marshal.loads(_exactly(line, int(head)))
            alive, held = os.pipe()
            if pid := os.fork():
                for number in (*files, held):
                    os.close(number)
                line.sendall(b"%d\n" % pid)
                running.register(alive, selectors.EVENT_READ, (pid, line))
                continue
            # from here on it is the command; *held* closes when it ends, however it does
            running.close()
            listener.close()
            line.close()
            _become(environment, folder, files)
            if program == "tmux":
                os.setsid()  # as `TmuxServer.start` has it
                _leave(start_server.main(*arguments))
            if program == "terminal":
                os.set_inheritable(held, True)  # it may become the tmux that it attaches to
                os.setsid()
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for number, name in enumerate(("stdin", "stdout", "stderr")):  # ours may be files
                    setattr(sys, name, open(number, "w" if number else "r", buffering=1, encoding="utf-8"))  # noqa: PTH123, SIM115
            sys.argv = [str(entry.__file__), *arguments]
            _leave(entry.main())


def _become(environment: Mapping[str, str], folder: str, files: Sequence[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def _leave(code: int) -> NoReturn:
    """End as Python does, but for the taking down of all that was imported, which takes longer than many a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def _ended(running: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tell whoever waits for it how a command ended."""
    pid, line = key.data
    running.unregister(key.fileobj)
    assert isinstance(key.fileobj, int)
    os.close(key.fileobj)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError), line:
        line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _exactly(line: socket.socket, length: int) -> bytes:
    taken = b""
    while len(taken) < length:
        piece = line.recv(length - len(taken))
        if not piece:
            raise ConnectionError("whoever wanted a command is gone")
        taken += piece
    return taken


if __name__ == "__main__":
    serve(sys.argv[1])
