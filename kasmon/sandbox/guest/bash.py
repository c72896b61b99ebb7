"""Bash: an interactive shell on its own terminal, so that Ctrl-C works as usual; each turn types two lines to it.

Each turn is a file that the shell sources, with its output sent to the guest program: so code may redirect the shell's
own output, have many lines or contain errors without ending the shell. `bashrc` defines how the shell answers. The file
descriptor for answers is closed while code runs, and has another number each time.
"""

import contextlib
import fcntl
import os
import re
import signal
import termios
from collections.abc import Mapping

from kasmon.sandbox.guest.children import build_environment, end_family, end_members, numbers, spawn
from kasmon.sandbox.guest.event_loop import EventLoop
from kasmon.sandbox.guest.interpreter import GuestInterpreter
from kasmon.sandbox.guest.private_folder import PrivateFolder, program
from kasmon.sandbox.guest.turn import GuestTurn

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH120, PTH100
TIOCSIG = 0x40045436
"""Linux: ioctl that signals the terminal's foreground process group, whatever its modes are."""
WHOLE = b"\n# whole\n"
"""The last line of a state file that the shell wrote completely."""
STATE, CARRIED = "bash.state", "bash.carried"
PASSING = ("bash.base", "bash.lent", "bash.forgotten", "bash.purged", "bash.names")
"""Files that are needed only during a turn."""
ANSWER = re.compile(rb"([0-9a-f]{16}) (\d+) ([^\0]*)\0")


class BashInterpreter(GuestInterpreter):
    name = "bash"

    def __init__(self, loop: EventLoop, place: PrivateFolder) -> None:
        super().__init__(loop, place)
        self._master = self._slave = self._control = -1
        self._numbers = (0, 0, 0)
        self._said, self._is_fresh = b"", True

    # Its process.

    def start(self) -> int:
        shell = program("bash")
        self.place.write("bash.base", b"")
        self._master, self._slave = os.openpty()
        self._turn_off_echo()
        self._control, control = os.pipe()
        out, err, answers = numbers(3)
        self._numbers = out, err, answers
        carried = f"{self.place.path}/{CARRIED}" if self.place.read(CARRIED) else ""
        more = {
            "KASMON_CONTROL": str(answers),
            "KASMON_RUN": self.place.path,
            "KASMON_CARRIED": carried,
            "TERM": "dumb",
        }
        files = {out: self.output("stdout"), err: self.output("stderr"), answers: control}
        argv = [shell, "--noprofile", "--rcfile", f"{HERE}/bashrc", "--noediting", "-i"]
        try:
            pid = spawn(argv, build_environment(more), files, terminal=os.ttyname(self._slave))
        except OSError:
            self.close()
            raise
        finally:
            os.close(control)
        self._said, self._is_fresh = b"", True
        for file in (self._control, self._master):
            os.set_blocking(file, False)
        self.loop.watch(self._control, self.listen)
        self.loop.watch(self._master, self._discard_output)
        return pid

    def close(self) -> None:
        for file in (self._master, self._slave, self._control):
            if file >= 0:
                self.loop.forget(file)
                os.close(file)
        self._master = self._slave = self._control = -1
        self.place.drop(f"bash-{self.turns}", *PASSING)

    def _turn_off_echo(self) -> None:
        """Turn off the terminal's echo; again for each turn, since code may change that."""
        modes = termios.tcgetattr(self._slave)
        modes[3] = (modes[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
        termios.tcsetattr(self._slave, termios.TCSANOW, modes)

    def _discard_output(self) -> None:
        """Discard what programs write to the terminal itself, other than stdout and stderr."""
        with contextlib.suppress(OSError):
            os.read(self._master, 4096)

    def signal_interrupt(self, is_second: bool) -> None:
        fcntl.ioctl(self._master, TIOCSIG, signal.SIGINT)

    def ask_to_exit(self) -> bool:
        """Send SIGHUP, at which the shell saves its state; kill the processes that it waits for."""
        os.kill(self.pid, signal.SIGHUP)
        end_members(self.pid)
        return True

    def saves_state(self) -> bool:
        state = self.place.read(STATE)
        self.place.drop(STATE, CARRIED)
        if state.endswith(WHOLE):
            self.place.write(CARRIED, state)
            return True
        return False

    def forget_saved_state(self) -> None:
        self.place.drop(STATE, CARRIED)

    # A turn.

    def feed(self, turn: GuestTurn) -> None:
        lines = {"run": self._run, "save": self._save, "load": self._load, "forget": self._forget}.get(turn.do)
        lines = self._set_variables if turn.do == "surround" else lines
        act = lines(turn) if lines else ""
        self._turn_off_echo()
        self._type(f" PROMPT_COMMAND='__k_say $?' __k_turn={turn.nonce}; {act}\n __k_say $?\n")

    def _run(self, turn: GuestTurn) -> str:
        out, err, answers = self._numbers
        line = f"source {self._file(f'bash-{turn.number}', str(turn.words['code']))}"
        line += f" </dev/null >&{out} 2>&{err} {out}>&- {err}>&- {answers}>&-"
        if self.last_code:  # `$?` is the exit code of the run before
            line = f"__k_back {self.last_code} || {line}"
        variables = turn.words.get("variables")
        if isinstance(variables, Mapping) and variables:
            lent = "".join(f"__k_lend {name} {quoted(str(value))}\n" for name, value in variables.items())
            line = f"source {self._file('bash.lent', lent)}; {line}"
        return line

    def _save(self, turn: GuestTurn) -> str:
        return f"__k_save {turn.words['path']}; __k_names {turn.words['path']}.names"

    def _load(self, turn: GuestTurn) -> str:
        return f"source {turn.words['path']}; set +eu; __k_names {turn.words['path']}.names"

    def _forget(self, turn: GuestTurn) -> str:
        names, values = turn.words.get("names"), turn.words.get("values")
        assert isinstance(names, list)
        assert isinstance(values, list)
        lines = [f"unset -v {name}" for name in names] + [f"__k_purge {quoted(value)}" for value in values]
        return f"source {self._file('bash.forgotten', chr(10).join(lines))}"

    def _set_variables(self, turn: GuestTurn) -> str:
        variables = turn.words.get("variables")
        assert isinstance(variables, Mapping)
        lines = [f"export {name}={quoted(str(value))}" for name, value in variables.items()]
        return f"source {self._file('bash.surround', chr(10).join(lines))}"

    def _file(self, name: str, text: str) -> str:
        return self.place.write(name, text.encode("utf-8", "surrogateescape") + b"\n")

    def _type(self, text: str) -> None:
        try:
            os.write(self._master, text.encode())
        except OSError:
            end_family(self.pid)

    def listen(self) -> None:
        try:
            data = os.read(self._control, 1 << 16)
        except OSError:
            return
        if not data:  # closed, or exec'ed another program, whose end is reaped
            self.loop.forget(self._control)
            if self.turn is None and self.pid:
                end_family(self.pid)
            return
        self._said += data
        while found := ANSWER.search(self._said):
            self._said = self._said[found.end() :]
            nonce, code, folder = found.groups()
            self._handle_answer(nonce.decode(), int(code), folder.decode("utf-8", "replace"))
        self._said = self._said[-(1 << 16) :]

    def _handle_answer(self, nonce: str, code: int, folder: str) -> None:
        turn = self.turn
        if turn is None or turn.nonce != nonce:
            return
        answer: dict[str, object] = {"rc": code, "cwd": folder}
        if turn.do in ("save", "load"):
            answer |= self._names(str(turn.words["path"]).rpartition("/")[2])
        elif turn.do == "forget":
            answer["purged"] = self.place.read("bash.purged").decode("utf-8", "replace").split()
        if self._is_fresh or turn.do != "run":
            self.place.drop(CARRIED, *PASSING)
        self._is_fresh = False
        self.place.drop(f"bash-{turn.number}", "bash.lent")
        self.handle_answer(nonce, answer)

    def _names(self, state: str) -> dict[str, object]:
        """Return which names the state file *state* contains; "lost" where the shell could not write it completely."""
        lines = self.place.read(f"{state}.names").decode("utf-8", "replace").splitlines()
        self.place.drop(f"{state}.names", f"{state}.names.all")
        if not self.place.read(state).endswith(WHOLE):
            return {"lost": "its state could not be saved"}
        parts = [line.split(" ", 2) for line in lines]
        return {
            "kept": [part[1] for part in parts if part[0] == "kept"],
            "lost": {part[1]: part[2] for part in parts if part[0] == "lost"},
        }


def quoted(text: str) -> str:
    """Return *text* quoted as one word for the shell."""
    return "'" + text.replace("'", "'\\''") + "'"
