"""kasmon's own tmux server: started with its own conf and a clean environment, known by its socket and its pid.

Every call is one short tmux process, bounded, and safe from any thread. What goes on all the time goes through `hub`.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from kasmon.errors import TmuxCommandError, TmuxMissingError, TmuxServerGoneError, TmuxTooOldError
from kasmon.launch import base_environment
from kasmon.paths import write_private
from kasmon.tmux import start
from kasmon.tmux.conf import CELLS, configuration
from kasmon.tmux.facts import (
    PANE_FACTS_FORMAT,
    PANE_FORMAT,
    TEXT_FORMAT,
    Pane,
    PaneFacts,
    PaneText,
    distinct,
    read_pane,
    read_pane_facts,
    read_text,
)
from kasmon.tmux.identity import Process, identify, listener
from kasmon.tmux.identity import signal as send_signal
from kasmon.tmux.quote import argument, command_line, escape_format, exact, own_name
from kasmon.tmux.version import MINIMUM, parse

LIMIT_S = 10.0
GONE = ("no server running", "error connecting", "lost server", "server exited")
TERMINALS = ("tmux-256color", "screen-256color", "screen")


class Server:
    """The tmux server at *socket*. Making a `Server` starts nothing."""

    def __init__(self, socket: Path, program: str = "", environment: Mapping[str, str] | None = None) -> None:
        """*program* is a name or a path, by default what `KASMON_TMUX` says, else `tmux`.

        *environment*: by default this process's; little of it reaches the server, see `server_environment`.
        """
        surroundings = dict(os.environ if environment is None else environment)
        self.socket = socket
        self._asked = program or surroundings.get("KASMON_TMUX") or "tmux"
        self._program = ""
        self._environment = server_environment(surroundings)
        self._path = surroundings.get("PATH")

    @property
    def environment(self) -> dict[str, str]:
        """What the server and its clients know of the surroundings."""
        return dict(self._environment)

    @property
    def program(self) -> str:
        """The absolute path of tmux.

        Raises:
            TmuxMissingError: if there is none.
        """
        if not self._program:
            found = shutil.which(self._asked, path=self._path)
            if found is None:
                raise TmuxMissingError(self._asked)
            self._program = str(Path(found).absolute())
        return self._program

    def version(self) -> str:
        """What `tmux -V` says, without the word tmux: `3.3a`.

        Raises:
            TmuxMissingError: if there is no such program.
            TmuxTooOldError: if it is older than 3.2, or no tmux.
        """
        try:
            answer = subprocess.run(
                [self.program, "-V"], capture_output=True, text=True, timeout=LIMIT_S, env=self._environment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TmuxMissingError(self._asked) from error
        version = answer.stdout.strip()
        if parse(version) < MINIMUM:
            raise TmuxTooOldError(version.removeprefix("tmux ") or "of no known version")
        return version.removeprefix("tmux ")

    def start(self) -> int:
        """The pid of our server, which runs with our conf from now on; starts it unless it does. Repeat at will.

        Raises:
            TmuxMissingError, TmuxTooOldError: if there is no usable tmux.
            TmuxCommandError: if it cannot be started, with tmux's own reason.
        """
        self.version()
        conf = configuration(self._terminal())
        digest = hashlib.sha256(conf.encode()).hexdigest()[:16]
        with contextlib.suppress(TmuxServerGoneError):
            pid, _, known = self.run("display-message", "-p", "#{pid} #{@kasmon_conf}").decode().strip().partition(" ")
            if known == digest:
                return int(pid)
        path = self.socket.with_name(f"{self.socket.name}.conf")
        write_private(path, f"{conf}set -s @kasmon_conf {digest}\n".encode())
        command = [sys.executable, "-P", start.__file__, self.program, str(self.socket), str(path)]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=30, env=self._environment, cwd="/")
        except subprocess.TimeoutExpired as error:
            raise TmuxCommandError("start-server", "it did not start within 30 s") from error
        if answer.returncode != 0 or not answer.stdout.strip().isdecimal():
            raise TmuxCommandError("start-server", answer.stderr.strip() or "it does not say why")
        process = identify(int(answer.stdout))
        if process is not None:
            write_private(self._record, f"{process.pid} {process.started}\n".encode())
        return int(answer.stdout)

    def run(self, *argv: str, stdin: bytes = b"") -> bytes:
        """What one tmux command prints. Values among *argv* must have been checked or escaped.

        Raises:
            TmuxServerGoneError: if no server answers at the socket; none is started.
            TmuxCommandError: if tmux refuses, or does not answer within 10 s.
        """
        command = [self.program, "-u", "-N", "-S", str(self.socket), *argv]
        try:
            answer = subprocess.run(
                command, input=stdin, capture_output=True, timeout=LIMIT_S, env=self._environment, cwd="/"
            )
        except subprocess.TimeoutExpired as error:
            raise TmuxCommandError(argv[0], f"no answer within {LIMIT_S:g} s") from error
        if answer.returncode != 0:
            reason = answer.stderr.decode("utf-8", "replace").strip()
            if reason.startswith(GONE):
                raise TmuxServerGoneError(str(self.socket))
            raise TmuxCommandError(argv[0], reason or f"exit {answer.returncode}")
        return answer.stdout

    def create(
        self, session_id: str, argv: Sequence[str], *, size: tuple[int, int] = CELLS, parent: str | None = None
    ) -> Pane:
        """A new pane that runs *argv*: in a session called *session_id*, or in a new window of session *parent* (`$3`).

        Nobody's view changes. The program starts in `/`: `launch.py` goes where the agent belongs, since a directory's
        name given to tmux would be read as a format. *size* is columns, rows.

        Raises:
            TmuxServerGoneError: if the server does not run.
            TmuxCommandError: if the name is taken or the parent is gone.
            ValueError: if *session_id* is no name of ours, or *argv* is empty.
        """
        name = own_name(session_id)
        words = command_line(argv)
        if parent is None:
            where = ["new-session", "-d", "-s", name, "-x", str(size[0]), "-y", str(size[1])]
            window = f"={name}:"
        else:
            where = ["new-window", "-d", "-t", f"{exact(parent)}:"]
            window = f"{exact(parent)}:={name}"
        tag = [";", "set-option", "-w", "-t", window, "@kasmon_id", name]
        fit = [";", "resize-window", "-t", window, "-x", str(size[0]), "-y", str(size[1])] if parent else []
        unpin = [";", "set-option", "-w", "-u", "-t", window, "window-size"] if parent else []
        answer = self.run(*where, "-n", name, "-c", "/", "-P", "-F", PANE_FORMAT, "--", *words, *tag, *fit, *unpin)
        pane = read_pane(answer)
        if pane is None:
            raise TmuxCommandError(where[0], f"it answered {answer!r}")
        return pane

    def respawn(self, pane: str, argv: Sequence[str]) -> Pane:
        """Run *argv* in *pane* anew, in place of what runs or ran there.

        Raises:
            TmuxServerGoneError, TmuxCommandError: if there is no such server or pane.
        """
        target = exact(pane)
        words = command_line(argv)
        ask = [";", "display-message", "-p", "-t", target, PANE_FORMAT]
        answer = self.run("respawn-pane", "-k", "-t", target, "-c", "/", "--", *words, *ask)
        made = read_pane(answer)
        if made is None:
            raise TmuxCommandError("respawn-pane", f"it answered {answer!r}")
        return made

    def kill_window(self, window: str) -> None:
        """End *window* wherever it is linked, and its program; one that is gone already is no error."""
        self._unless_gone("kill-window", "-t", exact(window))

    def rename(self, window: str, name: str) -> None:
        """Show *name*, a person's words, to whoever attaches; it is never read as a format."""
        target = exact(window)
        self.run(
            *("set-option", "-w", "-t", target, "@kasmon_name", argument(name), ";"),
            *("rename-window", "-t", target, "--", argument(escape_format(name))),
        )

    def resize(self, window: str, width: int, height: int) -> None:
        """Give *window* a size, until a terminal looks at it, which then decides."""
        target = exact(window)
        self.run(
            *("resize-window", "-t", target, "-x", str(max(width, 1)), "-y", str(max(height, 1)), ";"),
            *("set-option", "-w", "-u", "-t", target, "window-size"),
        )

    def pane_facts(self) -> list[PaneFacts]:
        """Every pane of ours once, as it is now, in the order in which they were made.

        Raises:
            TmuxServerGoneError: if the server does not run.
        """
        lines = self._unless_gone("list-panes", "-a", "-F", PANE_FACTS_FORMAT).splitlines()
        return distinct([facts for line in lines if (facts := read_pane_facts(line))])

    def pane_text(self, pane: str) -> PaneText:
        """Title, directory and command of *pane*: foreign text, clean it before anybody sees it."""
        return read_text(self.run("display-message", "-p", "-t", exact(pane), TEXT_FORMAT).removesuffix(b"\n"))

    def load(self, text: bytes) -> str:
        """Put *text* into a buffer of its own, over a pipe, and say its name; `Hub.paste_buffer` empties it.

        Raises:
            ValueError: if there is nothing in it: tmux keeps no empty buffer.
        """
        if not text:
            raise ValueError("there is nothing to paste")
        buffer = f"kasmon-{uuid.uuid4().hex}"
        self.run("load-buffer", "-b", buffer, "-", stdin=text)
        return buffer

    def attach_argv(self, session: str, window: str | None = None) -> list[str]:
        """The command that shows *session* (our id, or `$3`) in a real terminal; with *window* (`@5`), that one."""
        target = exact(session) if session.startswith("$") else f"={own_name(session)}"
        place = f"{target}:{exact(window)}" if window else target
        return [self.program, "-u", "-S", str(self.socket), "attach-session", "-t", place]

    def attach_line(self, session: str, window: str | None = None) -> str:
        """`attach_argv` as a person can paste it into another terminal, inside another tmux too."""
        return shlex.join(["env", "-u", "TMUX", *self.attach_argv(session, window)])

    def process(self) -> Process | None:
        """The process that answers at our socket."""
        return listener(self.socket)

    def kill_server(self, patience_s: float = 2.0) -> None:
        """End the server and all that runs in it. Close your hub first: tmux may wait for a client that does not read.

        It is asked, then told by TERM and KILL, each only if it still is the process that answered at our socket; each
        gets *patience_s*.
        """
        process = self.process()
        if process is None:
            return
        with contextlib.suppress(subprocess.SubprocessError):
            command = [self.program, "-N", "-S", str(self.socket), "kill-server"]
            subprocess.run(command, env=self._environment, capture_output=True, timeout=patience_s)
            if _gone_within(process, patience_s):
                return
        for number in (signal.SIGTERM, signal.SIGKILL):
            send_signal(process, number)
            if _gone_within(process, patience_s):
                return

    def heal_socket(self) -> bool:
        """Whether the server answers again: one whose socket file was swept away makes it anew when asked by USR1."""
        if self.process() is not None:
            return True
        try:
            pid, _, started = self._record.read_text("utf-8").strip().partition(" ")
            recorded = Process(int(pid), started)
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

    @property
    def _record(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.server")

    def _terminal(self) -> str:
        """The best name for our panes that this machine's terminfo knows."""
        infocmp = shutil.which("infocmp", path=self._path)
        for name in TERMINALS[:-1]:
            if infocmp and subprocess.run([infocmp, name], capture_output=True, env=self._environment).returncode == 0:
                return name
        return TERMINALS[-1] if infocmp else TERMINALS[1]

    def _unless_gone(self, *argv: str) -> bytes:
        """Like `run`, with nothing for what is not there any more."""
        try:
            return self.run(*argv)
        except TmuxCommandError as error:
            if "can't find" in error.reason or "no current" in error.reason or "no sessions" in error.reason:
                return b""
            raise


def server_environment(surroundings: Mapping[str, str]) -> dict[str, str]:
    """What our tmux server may know: nothing of an outer tmux, kasmon or other agents, and always some locale."""
    environment = base_environment(dict(surroundings))
    if not any(environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        environment["LANG"] = "C.UTF-8"
    return environment


def _gone_within(process: Process, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while identify(process.pid) == process:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
