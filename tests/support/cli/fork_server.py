"""Runs kasmon's commands and hosts without starting Python for each: one process has kasmon imported, and forks.

Each is a process of its own all the same, with its own arguments, variables, folder and descriptors, also for those who
look at it in /proc. A command takes a tenth of a second less of the processor, a host a quarter, a dashboard half a
second, and tests run hundreds of them. The program that starts a tmux server takes a quarter of a second less, all of
it the import of libtmux.

`python -P fork_server.py SOCKET` serves until its stdin is closed, as it is when whoever started it is gone.
"""

import atexit
import contextlib
import fcntl
import gc
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, Any, Literal, NoReturn, TypeAlias

KASMON = (sys.executable, "-P", "-m", "kasmon")
Kind: TypeAlias = Literal["kasmon", "terminal", "streams", "host"]
"""A command; one that its stdin controls, as a terminal; one with a terminal for its streams alone; a detached host."""
OF_PYTHON = ("PYTHON", "LANG", "LC_")
"""How variables begin that Python reads when it starts."""
ROOM = "ROOM"
"""A variable that makes room for those of the forks, in what /proc shows."""
ARGUMENTS_BYTES, VARIABLES_BYTES = 512, 4096
FIRST = ("XDG_", "KASM")
"""How the variables begin by which processes are found."""
STRUCTURED = ("kasmon.host.structured.host", "kasmon.backends.scripted_backend", "concurrent.futures.thread")
HOSTS = {
    "--plan": ("kasmon.supervisor.plans.runner",),
    "--tmux": ("kasmon.host.terminal.host",),
    "--fork-server": ("kasmon.host.rpc.fork_server", *STRUCTURED),
    "": STRUCTURED,
}
"""What hosts import, by their first argument."""

PAUSES = (
    ("kasmon.scripted_agent.agent", "STEP_S"),
    ("kasmon.scripted_agent.player", "WORD_S"),
    ("kasmon.scripted_agent.player", "TOOL_S"),
)
"""The pauses of a structured scripted agent, by their module. They are for eyes; a test waits for the end of a turn."""
FASTER = 10
STARTER = "start_server.py"
TMUX_STARTER = """
import _socket, marshal, os, sys
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
line.connect({socket!r})
request = marshal.dumps(("tmux", sys.argv[1:], dict(os.environ), os.getcwd(), [0, 1, 2]))
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
        kind: Kind = "kasmon",
        passed: Sequence[int] = (),
    ) -> "Command":
        """Start `kasmon *arguments` with stdin, stdout and stderr *files*, and *passed* under their own numbers."""
        return ask(self.path, kind, arguments, environment, folder, files, passed)

    @property
    def path(self) -> str:
        return str(self._started() / "s")

    @property
    def pid(self) -> int:
        """The pid of its process; 0 before its first command."""
        return self._process.pid if self._process else 0

    def tmux_starter(self) -> str:
        """The path of a program to run in place of `kasmon.tmux.start_server`."""
        return str(self._started() / STARTER)

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
            (self._folder / STARTER).write_text(TMUX_STARTER.format(socket=path))
            argv = [sys.executable, "-P", __file__, path, "-" * ARGUMENTS_BYTES]
            environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYTHON)}
            # it outlives a test and that one's home
            environment |= PLAIN | {"PYTHONUTF8": "1", "HOME": "/", ROOM: "-" * VARIABLES_BYTES}
            self._process = subprocess.Popen(
                argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
            )
            assert self._process.stdout is not None
            with self._process.stdout as output:
                assert output.readline(), "the fork server did not start"
        return self._folder


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of *environment* that Python reads when it starts."""
    names = {name for name in environment if name.startswith(OF_PYTHON)} - {"PYTHONUTF8"}
    return {name: environment[name] for name in names if environment[name]}


PLAIN = of_python(os.environ) | {"LC_ALL": "C.UTF-8"}
"""Those in most tests."""
OURS = ForkServer()
"""The one of this process."""


def ask(
    path: str,
    kind: Kind,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | str,
    files: Sequence[int],
    passed: Sequence[int] = (),
) -> "Command":
    """Have the process at *path* start it, as `ForkServer.start` has it."""
    numbers = [*range(len(files)), *passed]
    request = marshal.dumps((kind, list(arguments), dict(environment), str(folder), numbers))
    line = socket.socket(socket.AF_UNIX)
    with line:
        line.connect(path)
        socket.send_fds(line, [b"%8d" % len(request)], [*files, *passed])
        line.sendall(request)
        return Command(line)


class Command:
    """A command that was started, as `subprocess.Popen` has it."""

    def __init__(self, line: socket.socket) -> None:
        self.returncode: int | None = None
        self._line = line.detach()  # in a cycle of garbage, a socket may be found open before `__del__` closes it
        self._told = b""
        self._lock = threading.Lock()
        self.pid = self._read(None)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with contextlib.suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code.

        Raises:
            TimeoutError: if it still runs after *timeout* seconds.
        """
        with self._lock:
            if self.returncode is None:
                self.returncode = self._read(timeout)
                self._close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _read(self, limit_s: float | None) -> int:
        """The number in the next line."""
        ready = select.poll()
        ready.register(self._line, select.POLLIN)
        while b"\n" not in self._told:
            if not ready.poll(None if limit_s is None else limit_s * 1000):
                raise TimeoutError(f"it runs after {limit_s} s")
            piece = os.read(self._line, 64)
            if not piece:
                raise ConnectionError("the process that forks is gone")
            self._told += piece
        number, _, self._told = self._told.partition(b"\n")
        return int(number)

    def _close(self) -> None:
        line, self._line = self._line, -1
        if line >= 0:
            os.close(line)

    def __del__(self) -> None:
        self._close()


Process: TypeAlias = subprocess.Popen[bytes] | Command


def start_host(what: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> Process:
    """Start `kasmon host *what`, detached, which writes to *output*."""
    argv = ["host", *what]
    with open(os.devnull, "rb") as given:  # noqa: PTH123
        if sys.platform == "linux" and of_python(environment) == PLAIN:
            return OURS.start(argv, environment, Path("/"), [each.fileno() for each in (given, output, output)], "host")
        return subprocess.Popen(
            [*KASMON, *argv],
            env=environment,
            cwd="/",
            start_new_session=True,
            stdin=given,
            stdout=output,
            stderr=output,
        )


def serve(path: str) -> NoReturn:
    """Fork for every command that comes in at *path*."""
    import importlib
    import pkgutil

    import libtmux  # noqa: F401  # for `start_server`

    import kasmon.cli
    from kasmon.tmux import start_server

    importlib.import_module("kasmon.cli.app")
    _shorten_pauses()
    for module in pkgutil.walk_packages(kasmon.cli.__path__, "kasmon.cli."):
        importlib.import_module(module.name)
    start_hosts_by(lambda: path, lambda: of_python(os.environ))
    start_server.__file__ = str(Path(path).with_name(STARTER))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    ended, wakes = os.pipe()
    for number in (ended, wakes):
        os.set_blocking(number, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes)
    gc.freeze()  # what is there now is nobody's garbage; a fork that does not touch it shares it
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    lines: dict[int, socket.socket] = {}
    while True:
        readable = select.select([listener.fileno(), ended, 0], [], [])[0]
        if 0 in readable:
            os._exit(0)
        if ended in readable:
            os.read(ended, 4096)
            _tell_ends(lines)
        if listener.fileno() not in readable:
            continue
        line, _address = listener.accept()
        request, files = _receive(line)
        if not request:
            _close(files)
            line.close()
            continue
        kind, arguments, environment, folder, numbers = request
        _import_for(kind, arguments)
        if pid := _fork():
            _close(files)
            with contextlib.suppress(OSError):  # who asked was killed
                line.sendall(b"%d\n" % pid)
            lines[pid] = line
            continue
        # from here on it is the command
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _show(["-P", "-m", "kasmon", *arguments], environment)
        _become(kind, environment, folder, dict(zip(numbers, files, strict=True)))
        _leave(_main(kind, arguments))


def _shorten_pauses() -> None:
    for module, name in PAUSES:
        loaded = import_module(module)
        setattr(loaded, name, tuple(seconds / FASTER for seconds in getattr(loaded, name)))


def _fork() -> int:
    """Fork; return here once `_become` has closed the fork's other descriptors, as `Popen` returns after `exec`.

    A process that looks for the fork by its variables in /proc finds it by then.
    """
    becoming, became = os.pipe()
    if pid := os.fork():
        os.close(became)
        os.read(becoming, 1)
        os.close(becoming)
    return pid


def _import_for(kind: str, arguments: Sequence[str]) -> None:
    """Import what it will import, for it and all after it."""
    modules: tuple[str, ...] = ()
    if kind == "host":
        modules = HOSTS.get(arguments[1], HOSTS[""])
    elif kind in ("terminal", "streams") and not arguments:
        modules = ("kasmon.tui.process.run",)
    if any(each not in sys.modules for each in modules):
        for each in modules:
            import_module(each)
        if modules == HOSTS["--tmux"]:
            from kasmon.detection.rules.catalog import RuleCatalog

            RuleCatalog()  # its module keeps the rules
        gc.collect()
        gc.freeze()


def _main(kind: str, arguments: list[str]) -> int:
    import kasmon.__main__ as entry
    from kasmon.tmux import start_server

    if kind == "tmux":
        return start_server.main(*arguments)
    sys.argv = [str(entry.__file__), *arguments]
    return entry.main()


def _become(kind: str, environment: Mapping[str, str], folder: str, files: Mapping[int, int]) -> None:
    """Make this fork what a new process would be, with the descriptors *files* under other numbers."""
    if kind != "kasmon":
        os.setsid()  # as `TmuxServer.start` and `spawn` have it
    above = {number: fcntl.fcntl(file, fcntl.F_DUPFD, 200) for number, file in files.items()}
    for number, file in above.items():
        os.dup2(file, number)
    begin = 3
    for number in sorted(number for number in files if number > 2):
        os.closerange(begin, number)
        begin = number + 1
    os.closerange(begin, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if kind == "host":
        os.umask(0o077)
    if kind == "terminal":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if kind in ("terminal", "streams"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate(("stdin", "stdout", "stderr")):  # ours may be files
            setattr(sys, name, open(number, "w" if number else "r", buffering=1, encoding="utf-8"))  # noqa: PTH123, SIM115


def _show(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Replace the command line and the variables of this process in what /proc shows, where there is one."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return
    fields = [int(number) for number in stat.read_bytes().rpartition(b")")[2].split()[45:49]]
    found_by = sorted(environment, key=lambda name: not name.startswith(FIRST))
    variables = [f"{name}={environment[name]}" for name in found_by]
    memory = os.open("/proc/self/mem", os.O_RDWR)
    for start, end, entries in (
        (fields[0], fields[1], [sys.executable, *arguments]),
        (fields[2], fields[3], variables),
    ):
        shown = b"".join(os.fsencode(entry) + b"\0" for entry in entries)
        os.pwrite(memory, shown[: end - start - 1].ljust(end - start, b"\0"), start)
    os.close(memory)


def _leave(code: int) -> NoReturn:
    """End as Python does, but for the taking down of all that was imported, which takes longer than many a command."""
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def _tell_ends(lines: dict[int, socket.socket]) -> None:
    """Tell those who wait for commands how they ended."""
    while lines:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with contextlib.suppress(OSError), lines.pop(pid) as line:
            line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _receive(line: socket.socket) -> tuple[tuple[Any, ...], Sequence[int]]:
    """What `ask` wants, empty if who asked was killed; and the descriptors that came with it."""
    head, files, _flags, _sender = socket.recv_fds(line, 8, 8)
    with contextlib.suppress(ConnectionError):
        return (marshal.loads(_exactly(line, int(head))) if head else ()), files
    return (), files


def _close(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


def _exactly(line: socket.socket, length: int) -> bytes:
    taken = b""
    while len(taken) < length:
        piece = line.recv(length - len(taken))
        if not piece:
            raise ConnectionError("whoever wanted a command is gone")
        taken += piece
    return taken


def start_hosts_by(path: Callable[[], str], python: Callable[[], Mapping[str, str]]) -> None:
    """Have `spawn` start the hosts of this process by the one at *path*, if Python gets the variables *python*."""
    from kasmon.host.rpc import spawn

    plainly = spawn._start

    def start(
        what: Sequence[str],
        environment: Mapping[str, str],
        stdin: IO[bytes] | None,
        output: IO[bytes] | None,
        passed: Sequence[int] = (),
    ) -> Any:
        if sys.executable != KASMON[0] or of_python(environment) != python():
            return plainly(what, environment, stdin, output, passed)
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
            files = [(each or nothing).fileno() for each in (stdin, output, output)]
            return ask(path(), "host", ["host", *what], environment, "/", files, passed)

    spawn._start = start


if __name__ == "__main__":
    serve(sys.argv[1])
