"""kasmon's own tmux server: its process, started with our conf and a clean environment, and operations on its panes.

Every call is one short tmux process, bounded, and safe from any thread. Continuous traffic goes through `hub`.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kasmon.errors import TmuxCommandError, TmuxMissingError, TmuxServerGoneError, TmuxTooOldError
from kasmon.launch import MACHINERY, base_environment
from kasmon.paths import write_private
from kasmon.tmux import start_server as start
from kasmon.tmux.formats import PANE_FORMAT, CreatedPane, read_pane
from kasmon.tmux.process_identity import ProcessIdentity, identify, listener
from kasmon.tmux.process_identity import signal as send_signal
from kasmon.tmux.quoting import command_line, exact, own_name
from kasmon.tmux.server_config import CELLS, HISTORY_LINES, MINIMUM, configuration, parse

LIMIT_S = 10.0
GONE = ("no server running", "error connecting", "lost server", "server exited")
TERMINALS = ("tmux-256color", "screen-256color", "screen")


class TmuxServer:
    """kasmon's tmux server at a socket; `start()` it first. The constructor starts nothing."""

    def __init__(
        self,
        socket: Path,
        program: str = "",
        environment: Mapping[str, str] | None = None,
        *,
        history_lines: int = HISTORY_LINES,
    ) -> None:
        """*program* is a name or a path, by default the value of `KASMON_TMUX`, else `tmux`.

        *environment*: by default this process's environment; `server_environment` reduces it for the server.
        *history_lines*: the history length of panes created after `start`.
        """
        variables = dict(os.environ if environment is None else environment)
        self.socket = socket
        self._requested_program = program or variables.get("KASMON_TMUX") or "tmux"
        self._program = ""
        self._environment = server_environment(variables)
        self._path = variables.get("PATH")
        self._history_lines = history_lines

    @property
    def environment(self) -> dict[str, str]:
        return dict(self._environment)

    @property
    def program(self) -> str:
        """The absolute path of tmux. Raises `TmuxMissingError` if there is none."""
        if not self._program:
            found_path = shutil.which(self._requested_program, path=self._path)
            if found_path is None:
                raise TmuxMissingError(self._requested_program)
            self._program = str(Path(found_path).absolute())
        return self._program

    def version(self) -> str:
        """Return the output of `tmux -V` without the word tmux: `3.3a`.

        Raises:
            TmuxMissingError: if there is no such program.
            TmuxTooOldError: if it is older than 3.2, or no tmux.
        """
        try:
            answer = subprocess.run(
                [self.program, "-V"], capture_output=True, text=True, timeout=LIMIT_S, env=self._environment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TmuxMissingError(self._requested_program) from error
        version = answer.stdout.strip()
        if parse(version) < MINIMUM:
            raise TmuxTooOldError(version.removeprefix("tmux ") or "of no known version")
        return version.removeprefix("tmux ")

    def start(self) -> int:
        """Start our server, unless it runs with our conf already; return its pid. Idempotent.

        Raises:
            TmuxMissingError, TmuxTooOldError: if there is no usable tmux.
            TmuxCommandError: if it cannot be started, with tmux's own reason.
        """
        self.version()
        conf = configuration(self._find_terminal_name(), self._history_lines)
        digest = hashlib.sha256(conf.encode()).hexdigest()[:16]
        with contextlib.suppress(TmuxServerGoneError):
            pid, _, known = self.run("display-message", "-p", "#{pid} #{@kasmon_conf}").decode().strip().partition(" ")
            if known == digest:
                return int(pid)
        path = self.socket.with_name(f"{self.socket.name}.conf")
        write_private(path, f"{conf}set -s @kasmon_conf {digest}\n".encode())
        command = [sys.executable, "-P", start.__file__, self.program, str(self.socket), str(path)]
        try:
            environment = self._environment | {MACHINERY: "tmux"}  # marks the server's jobs
            answer = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=30,
                env=environment,
                cwd="/",
                start_new_session=True,  # what shares our session is not kasmon's own (`host.rpc.process_origin`)
            )
        except subprocess.TimeoutExpired as error:
            raise TmuxCommandError("start-server", "it did not start within 30 s") from error
        except OSError as error:
            raise build_run_error("start-server", error) from error
        if answer.returncode != 0 or not answer.stdout.strip().isdecimal():
            raise TmuxCommandError("start-server", answer.stderr.strip() or "it does not say why")
        process = identify(int(answer.stdout))
        if process is not None:
            write_private(self._record_file, f"{process.pid} {process.started}\n".encode())
        return int(answer.stdout)

    def run(self, *argv: str, stdin: bytes = b"") -> bytes:
        """Run one tmux command and return its output. Values among *argv* must have been checked or escaped.

        Raises:
            TmuxServerGoneError: if no server answers at the socket; none is started.
            TmuxCommandError: if tmux refuses, does not answer within 10 s, or cannot be run.
        """
        command = [self.program, "-u", "-N", "-S", str(self.socket), *argv]
        try:
            with self._hold_lock(fcntl.LOCK_SH):
                answer = subprocess.run(
                    command, input=stdin, capture_output=True, timeout=LIMIT_S, env=self._environment, cwd="/"
                )
        except subprocess.TimeoutExpired as error:
            raise TmuxCommandError(argv[0], f"no answer within {LIMIT_S:g} s") from error
        except OSError as error:
            raise build_run_error(argv[0], error) from error
        if answer.returncode != 0:
            reason = answer.stderr.decode("utf-8", "replace").strip()
            if reason.startswith(GONE):
                raise TmuxServerGoneError(str(self.socket))
            raise TmuxCommandError(argv[0], reason or f"exit {answer.returncode}")
        return answer.stdout

    def process(self) -> ProcessIdentity | None:
        """Return the process that answers at our socket."""
        return listener(self.socket)

    def kill_server(self, patience_s: float = 2.0) -> None:
        """End the server and all its programs. Close your hub first: tmux may wait for a client that does not read.

        `kill-server` comes first, then TERM and KILL, each only if that process is still the one that answered at our
        socket; each step gets *patience_s*.
        """
        process = self.process()
        if process is None:
            return
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = [self.program, "-N", "-S", str(self.socket), "kill-server"]
            subprocess.run(command, env=self._environment, capture_output=True, timeout=patience_s)
            if _wait_until_gone(process, patience_s):
                return
        for number in (signal.SIGTERM, signal.SIGKILL):
            send_signal(process, number)
            if _wait_until_gone(process, patience_s):
                return

    def heal_socket(self) -> bool:
        """Return whether the server answers; one whose socket file was deleted recreates it on SIGUSR1."""
        if self.process() is not None:
            return True
        try:
            pid, _, started = self._record_file.read_text("utf-8").strip().partition(" ")
            recorded = ProcessIdentity(int(pid), started)
        except (OSError, ValueError):
            return False
        if not send_signal(recorded, signal.SIGUSR1):
            return False
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            if self.process() == recorded:
                return True
            time.sleep(0.01)
        return False

    def create(
        self, session_id: str, argv: Sequence[str], *, size: tuple[int, int] = CELLS, parent: str | None = None
    ) -> CreatedPane:
        """Create a pane that runs *argv*: in a session named *session_id*, or a new window of session *parent* (`$3`).

        No client's current window changes. The program starts in `/`; `launch.py` changes to the agent's directory, as
        tmux would expand a directory's name as a format. *size* is columns, rows.

        Raises:
            TmuxServerGoneError: if the server does not run.
            TmuxCommandError: if the name is taken or the parent is gone.
            ValueError: if *session_id* is no valid name, or *argv* is empty.
        """
        name = own_name(session_id)
        arguments = command_line(argv)
        if parent is None:
            where = ["new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1])]
            window = f"={name}:"
        else:
            where = ["new-window", "-d", "-t", f"{exact(parent)}:"]
            window = f"{exact(parent)}:={name}"
        tag = [";", "set-option", "-w", "-t", window, "@kasmon_id", name]
        fit = [";", "resize-window", "-t", window, "-x", str(size[0]), "-y", str(size[1])] if parent else []
        unpin = [";", "set-option", "-w", "-u", "-t", window, "window-size"] if parent else []
        answer = self.run(*where, "-n", name, "-c", "/", "-P", "-F", PANE_FORMAT, "--", *arguments, *tag, *fit, *unpin)
        pane = read_pane(answer)
        if pane is None:
            raise TmuxCommandError(where[0], f"it answered {answer!r}")
        return pane

    def respawn(self, pane: str, argv: Sequence[str]) -> CreatedPane:
        """Run *argv* in the window of *pane*, in place of its program; return the new pane that replaces *pane*.

        After a respawn, tmux 3.3a continues to count the old program's bytes. It crashes, with all agents, if a client
        had not read them all. So this makes a new pane and kills the old one.

        Raises:
            TmuxServerGoneError, TmuxCommandError: if there is no such server or pane.
        """
        target = exact(pane)
        make = ["split-window", "-d", "-t", target, "-c", "/", "-P", "-F", PANE_FORMAT, "--", *command_line(argv)]
        try:
            answer = self.run(*make, ";", "kill-pane", "-t", target)
        except TmuxCommandError as error:
            if not error.reason.startswith("no space"):
                raise
            self.resize(target, *CELLS)  # the window holds both panes for a moment
            answer = self.run(*make, ";", "kill-pane", "-t", target)
        made = read_pane(answer)
        if made is None:
            raise TmuxCommandError("split-window", f"it answered {answer!r}")
        return made

    def resize(self, window: str, width: int, height: int) -> None:
        """Resize *window* until a client attaches, whose size then counts."""
        target = exact(window)
        self.run(
            *("resize-window", "-t", target, "-x", str(max(width, 1)), "-y", str(max(height, 1)), ";"),
            *("set-option", "-w", "-u", "-t", target, "window-size"),
        )

    def load(self, text: bytes) -> str:
        """Load *text* into a new buffer, over a pipe, and return the buffer's name; who pastes it deletes it.

        Raises:
            ValueError: if *text* is empty: tmux stores no empty buffer.
        """
        if not text:
            raise ValueError("nothing to paste")
        buffer = f"kasmon-{uuid.uuid4().hex}"
        self.run("load-buffer", "-b", buffer, "-", stdin=text)
        return buffer

    def attach_argv(self, session: str, window: str | None = None) -> list[str]:
        """Return the command that shows *session* (our id, or `$3`) in a terminal; with *window* (`@5`), that one."""
        target = exact(session) if session.startswith("$") else f"={own_name(session)}"
        place = f"{target}:{exact(window)}" if window else target
        return [self.program, "-u", "-S", str(self.socket), "attach-session", "-t", place]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Block every `run` of any process on this server meanwhile. Control clients attach inside this context.

        tmux 3.3a crashes if it sends a notification while a control client is half attached: it writes to all clients,
        and that one has no buffer yet (seen with new sessions: one attach in twenty).
        """
        with self._hold_lock(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _hold_lock(self, kind: int) -> Iterator[None]:
        try:
            handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TmuxServerGoneError(str(self.socket)) from error
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    @property
    def _lock_file(self) -> Path:
        """The lock file of `quiet`, shared by our processes."""
        return self.socket.with_name(f"{self.socket.name}.turn")

    @property
    def _record_file(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.server")

    def _find_terminal_name(self) -> str:
        """Return the best terminal name for our panes that this machine's terminfo has."""
        infocmp = shutil.which("infocmp", path=self._path)
        for name in TERMINALS[:-1]:
            if infocmp and subprocess.run([infocmp, name], capture_output=True, env=self._environment).returncode == 0:
                return name
        return TERMINALS[-1] if infocmp else TERMINALS[1]


def build_run_error(command: str, error: OSError) -> TmuxCommandError:
    """Return the error for a *command* that could not run: the program is gone, or the system is out of resources."""
    return TmuxCommandError(command, f"tmux cannot be run: {error.strerror or error}")


def server_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment: without variables of an outer tmux, kasmon or agents, always with a locale."""
    environment = base_environment(dict(variables))
    if not any(environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        environment["LANG"] = "C.UTF-8"
    return environment


def _wait_until_gone(process: ProcessIdentity, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while identify(process.pid) == process:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
