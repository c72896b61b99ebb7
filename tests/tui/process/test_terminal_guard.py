"""However the dashboard ends, the terminal is as it was; on real terminals, and in a real shell."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from kasmon.tui.process.terminal_guard import DASH, RESTORE
from tests.support.tui.pty_program import OnTerminal, program
from tests.support.wait import until

BASH = shutil.which("bash")
TOLD = b"kasmon: the dashboard was killed (signal 9); your sessions are still running - run kasmon again"
HAS_DASH = os.access(DASH, os.X_OK)
AWAKE = ["copied", "anew"]
ASLEEP = [pytest.param(f"{fork}-asleep", marks=pytest.mark.skipif(not HAS_DASH, reason="no dash")) for fork in AWAKE]
FORKS = pytest.mark.parametrize("fork", [*AWAKE, *ASLEEP])
"""How the dashboard is started, and whether its guard sleeps meanwhile."""
SLEEPS = pytest.mark.parametrize("fork", [AWAKE[0], ASLEEP[0]])


def noted(notes: Path, kind: str) -> list[object]:
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [value for each, value in map(json.loads, lines) if each == kind]


def pids(notes: Path) -> tuple[int, int]:
    """The guard's and the dashboard's, once the dashboard is at work."""
    until(lambda: noted(notes, "live"), what="a dashboard at work")
    pair = noted(notes, "pids")[-1]
    assert isinstance(pair, list)
    return pair[0], pair[1]


def is_at_work(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def guarded(home: Path, how: str = "run", code: int = 0, fork: str = "copied") -> Iterator[OnTerminal]:
    with OnTerminal(program("guarded", str(home / "notes"), how, str(code), fork), home) as screen:
        yield screen


@FORKS
def test_after_kill_9_the_terminal_is_restored_and_one_line_gives_the_reason(tmp_path: Path, fork: str) -> None:
    with guarded(tmp_path, fork=fork) as screen:
        guard, dashboard = pids(tmp_path / "notes")
        assert (screen.pid, screen.is_raw) == (guard, True)
        os.kill(dashboard, signal.SIGKILL)

        assert 137 == screen.ended()
        assert screen.before == screen.modes
        until(lambda: screen.seen.endswith(RESTORE + TOLD + b"\r\n"))


def test_the_restored_modes_are_all_that_are_ever_set(tmp_path: Path) -> None:
    """Every mode that Textual and the focus switch on has its opposite in what the guard writes."""
    with guarded(tmp_path) as screen:
        _, dashboard = pids(tmp_path / "notes")
        screen.until(b"\x1b[>0u")
        os.kill(dashboard, signal.SIGKILL)
        screen.ended()

    alive = screen.seen[: screen.seen.index(RESTORE)]
    switched_on = {part.split(b"h")[0] for part in alive.split(b"\x1b[?")[1:] if part.split(b"h")[0].isdigit()}
    assert {b"1049", b"1000", b"1003", b"1006", b"1015", b"1004", b"2004"} <= switched_on
    assert all(b"\x1b[?" + mode + b"l" in RESTORE for mode in switched_on)
    assert b"\x1b[?7l" in alive
    assert b"\x1b[?7h" in RESTORE
    assert alive.count(b"\x1b[>25u") + alive.count(b"\x1b[>0u") == RESTORE.count(b"\x1b[<u")


@SLEEPS
def test_a_regular_end_is_left_unchanged(tmp_path: Path, fork: str) -> None:
    with guarded(tmp_path, "leave", 3, fork) as screen:
        assert 3 == screen.ended()
        assert screen.before == screen.modes
        assert RESTORE not in screen.seen


@SLEEPS
def test_a_dashboard_that_leaves_a_raw_terminal_is_cleaned_up(tmp_path: Path, fork: str) -> None:
    with guarded(tmp_path, "vanish", 4, fork) as screen:
        assert 4 == screen.ended()
        assert screen.before == screen.modes
        until(lambda: screen.seen.endswith(RESTORE))


@SLEEPS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_guard_passes_on_signals(tmp_path: Path, number: signal.Signals, fork: str) -> None:
    with guarded(tmp_path, fork=fork) as screen:
        pids(tmp_path / "notes")
        os.kill(screen.pid, number)

        assert 128 + number == screen.ended()
        assert screen.before == screen.modes
        assert TOLD[:20] not in screen.seen


@SLEEPS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP])
def test_a_signal_to_both_processes_is_left_to_the_dashboard(tmp_path: Path, number: signal.Signals, fork: str) -> None:
    with guarded(tmp_path, fork=fork) as screen:
        guard, dashboard = pids(tmp_path / "notes")
        os.kill(guard, number)
        os.kill(dashboard, signal.SIGKILL)

        assert 137 == screen.ended()
        until(lambda: screen.seen.endswith(RESTORE + TOLD + b"\r\n"))


@SLEEPS
def test_a_guard_that_is_continued_signals_the_dashboard(tmp_path: Path, fork: str) -> None:
    with guarded(tmp_path, fork=fork) as screen:
        guard, dashboard = pids(tmp_path / "notes")
        os.kill(dashboard, signal.SIGTSTP)
        os.waitpid(guard, os.WUNTRACED)
        assert not screen.is_raw
        before = len(screen.seen)
        os.kill(guard, signal.SIGCONT)

        until(lambda: b"Ctrl+] or F12 list" in screen.seen[before:])


@pytest.mark.parametrize(("fork", "home"), [("copied", ""), ("anew", ""), ("otherwise", "/other")])
def test_if_a_fork_fails_the_dashboard_starts_in_a_new_process(tmp_path: Path, fork: str, home: str) -> None:
    """macOS; there the demo, which has a fleet of its own by then, starts only its dashboard again."""
    with guarded(tmp_path, "leave", 3, fork) as screen:
        assert 3 == screen.ended()

    assert [f"{tmp_path}{home}"] == noted(tmp_path / "notes", "home")


@pytest.mark.skipif(not HAS_DASH, reason="no dash")
def test_a_waiting_guard_uses_a_tenth_of_the_memory_of_python(tmp_path: Path) -> None:
    with guarded(tmp_path, fork="copied-asleep"):
        guard, _ = pids(tmp_path / "notes")
        until(lambda: psutil.Process(guard).exe().endswith("dash"))

        assert psutil.Process(guard).memory_full_info().uss < psutil.Process().memory_full_info().uss / 10


@pytest.mark.skipif(not HAS_DASH, reason="no dash")
def test_if_the_program_was_removed_a_shell_cleans_up(tmp_path: Path) -> None:
    """As an upgrade does it, say: the guard that sleeps cannot become what it was."""
    code = (
        f"import kasmon.tui.process.terminal_guard as g; g.__file__ = {str(tmp_path / 'gone')!r}; "
        "import tests.support.tui.programs.guarded as p"
    )
    run = "g.run_guarded(p.dashboard, asleep=True)"
    argv = [sys.executable, "-P", "-c", f"{code}; {run}", str(tmp_path / "notes"), "run", "0"]
    with OnTerminal(argv, tmp_path, environment={"PYTHONPATH": os.pathsep.join(sys.path)}) as screen:
        _, dashboard = pids(tmp_path / "notes")
        os.kill(dashboard, signal.SIGKILL)

        assert 1 == screen.ended()
        assert not screen.is_raw
        until(lambda: screen.seen.endswith(RESTORE))


RESTORES = """
import fcntl, os, termios, time, tty
from kasmon.tui.process import terminal_guard as guard
saved = guard._modes()
tty.setraw(0)
os.write(1, b"raw")
while not int.from_bytes(fcntl.ioctl(0, termios.FIONREAD, b"0000"), "little"):
    time.sleep(0.01)
guard._restore(saved)
os.set_blocking(0, False)
try:
    print("left", os.read(0, 100))
except BlockingIOError:
    print("left nothing")
"""


def test_text_typed_into_a_dead_dashboard_is_no_command_of_the_shell(tmp_path: Path) -> None:
    with OnTerminal([sys.executable, "-P", "-c", RESTORES], tmp_path) as screen:
        screen.until(b"raw")
        screen.send(b"rm -rf build\n")
        screen.until(b"left")
        screen.ended()

        assert b"left nothing" in screen.seen


def test_without_a_terminal_no_guard_starts(tmp_path: Path) -> None:
    code = (
        "import os, sys; from kasmon.tui.process.terminal_guard import run_guarded; "
        "sys.exit(run_guarded(lambda: os.getppid() and 7))"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL, check=False)

    assert 7 == ran.returncode


def test_the_guard_is_small_and_imports_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, kasmon.tui.process.terminal_guard; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"textual", "rich", "asyncio", "typing", "re", "msgspec", "subprocess", "pathlib"} & set(loaded)


class Shell:
    """A real bash with job control, at its prompt."""

    def __init__(self, screen: OnTerminal, notes: Path, fork: str) -> None:
        self.screen, self.notes, self.fork = screen, notes, fork
        screen.until(b"ready> ")

    def type(self, line: str) -> None:
        self.screen.send(line.encode() + b"\r")

    def start(self) -> tuple[int, int]:
        self.type(shlex.join(program("guarded", str(self.notes), "run", "0", self.fork)))
        return pids(self.notes)

    def works(self) -> None:
        """It reads and writes lines as ever."""
        before = len(self.screen.seen)
        self.type("echo alive-$((20+3))")
        until(lambda: b"alive-23\r\n" in self.screen.seen[before:])

    def stop(self, dashboard: int) -> None:
        before = len(self.screen.seen)
        os.kill(dashboard, signal.SIGTSTP)
        until(lambda: b"Stopped" in self.screen.seen[before:])

    def go_on(self) -> None:
        """Bring the job back, and wait for its picture."""
        before = len(self.screen.seen)
        self.type("fg")
        until(lambda: b"Ctrl+] or F12 list" in self.screen.seen[before:])
        until(lambda: self.screen.is_raw)


@pytest.fixture(params=[AWAKE[0], ASLEEP[0]])
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    if BASH is None:
        pytest.skip("there is no bash")
    argv = [BASH, "--noprofile", "--norc", "--noediting", "-i"]
    with OnTerminal(argv, tmp_path, environment={"PS1": "ready> ", "HISTFILE": "/dev/null"}) as screen:
        room = Shell(screen, tmp_path / "notes", request.param)
        yield room
        for pid in [pid for pair in noted(room.notes, "pids") for pid in pair]:  # type: ignore[attr-defined]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_in_a_shell_kill_9_returns_the_prompt(shell: Shell) -> None:
    _, dashboard = shell.start()
    os.kill(dashboard, signal.SIGKILL)

    shell.screen.until(TOLD)
    shell.type("echo code-$?")
    shell.screen.until(b"code-137")
    assert shell.screen.before[3] == shell.screen.modes[3]


def test_a_killed_guard_ends_the_dashboard_and_the_shell_continues(shell: Shell) -> None:
    guard, dashboard = shell.start()
    os.kill(guard, signal.SIGKILL)

    until(lambda: not is_at_work(dashboard), what="the dashboard's end")
    until(lambda: b"\x1b[?1049l" in shell.screen.seen and shell.screen.seen.count(b"\x1b[<u") >= 2)
    shell.works()


def test_a_stopped_dashboard_returns_the_shell_and_is_continued(shell: Shell) -> None:
    _, dashboard = shell.start()
    for _ in range(2):
        shell.stop(dashboard)
        shell.works()
        shell.go_on()

    shell.screen.send(b"typed\x1d")
    until(lambda: noted(shell.notes, "left"))
    assert b"typed" == b"".join(bytes.fromhex(str(value)) for value in noted(shell.notes, "keys"))
