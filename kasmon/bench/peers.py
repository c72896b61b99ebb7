"""Measures other programs for many agents that are installed on PATH, and kasmon in the same way, without sessions.

Each program runs in an empty git repository, with a home folder and a tmux server of its own. Its processes are those
whose `HOME` is that folder. They are ended by their pids.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import psutil

from kasmon.bench.support.figure import Figure, ratio
from kasmon.bench.support.process_cost import held_mb
from kasmon.bench.support.terminal import ESCAPES, KASMON, BenchTerminal, environment, read_for, reading
from kasmon.errors import LaunchError
from kasmon.process_identity import find_processes_with

LIMIT_S: Final = 30.0
SETTLE_S: Final = 5.0
"""The time from the first screen until memory and processor time are measured."""

GRACE_S: Final = 3.0


class Peer(NamedTuple):
    """How a program is started, and how its screen is read; texts are without escape sequences."""

    program: str
    argv: Sequence[str]
    ready: bytes
    """A text of its first screen that no earlier output contains."""
    version: Sequence[str] = ()
    """The command that prints the version; without one, the version is on the first screen, after a `v`."""
    questions: Mapping[bytes, bytes] = {}
    """The keys that answer each question before the first screen."""


PEERS: Final[Mapping[str, Peer]] = {
    "overcode": Peer(
        program="overcode",
        argv=("overcode", "tmux"),
        ready=b"New agent",
        questions={b"Choice [1]:": b"1\r", b"Proceed? [Y/n]": b"y\r"},
    ),
    "ccmanager": Peer("ccmanager", ("ccmanager",), b"Exit", ("ccmanager", "--version")),
    "claude-squad": Peer("claude-squad", ("claude-squad",), b"No agents running yet", ("claude-squad", "version")),
    "ai-terminal-manager": Peer("atm", ("tmux", "new-session", "atm sidebar"), b"history", ("atm", "--version")),
}
OURS: Final = Peer(KASMON[0], KASMON, b"No sessions yet", (*KASMON, "--version"))


def measure_peer(name: str, rounds: int, seconds: float) -> list[Figure]:
    """Measure the program *name* against kasmon: *rounds* starts each, in turn, then *seconds* without any work.

    Raises:
        LaunchError: if it is not on PATH.
        TimeoutError: if its first screen does not appear.
    """
    peer = PEERS[name]
    if shutil.which(peer.program) is None:
        raise LaunchError(f"cannot measure {name!r}: {peer.program!r} is not on PATH.", hint="Install it.")
    with _home() as home, _home() as own_home:
        version = _start(peer, home).version  # the first start creates its files
        _start(OURS, own_home)
        starts, own = [], []
        for _ in range(rounds):
            starts.append(_start(peer, home).shown_ms)
            own.append(_start(OURS, own_home).shown_ms)
        theirs, ours = _start(peer, home, seconds), _start(OURS, own_home, seconds)
    what = f"{name} {version}"
    return [
        ratio(f"{what}: first screen", starts, own, "kasmon", None, "without sessions; its questions answered at once"),
        _figure(f"{what}: memory", "MB", theirs.memory_mb, ours.memory_mb),
        _figure(f"{what}: at rest", "% of a core", theirs.share, ours.share),
    ]


class Start(NamedTuple):
    version: str
    shown_ms: float
    memory_mb: float = 0.0
    share: float = 0.0
    """The use of all its processes in percent of a core."""


def _start(peer: Peer, home: Path, seconds: float = 0.0) -> Start:
    """Start *peer* until its first screen; with *seconds*, measure its memory and its use afterwards. End it."""
    variables = _variables(home)
    try:
        argv = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(home / "work"), *peer.argv]
        with BenchTerminal(argv, variables, columns=160, rows=50) as terminal:
            shown_ms, output = _first_screen(terminal, peer)
            if not seconds:
                return Start(_version(peer, output, variables), shown_ms)
            read_for(terminal, SETTLE_S)
            pids = _processes(home)
            share = reading(terminal, pids, seconds)
            return Start("", shown_ms, sum(map(_memory_mb, pids)), share)
    finally:
        _end(home)


def _first_screen(terminal: BenchTerminal, peer: Peer) -> tuple[float, bytes]:
    """Answer the questions of *peer* until it is ready; return the time in ms since its start, and all output."""
    output, questions = b"", dict(peer.questions)
    while time.perf_counter() < terminal.started_at + LIMIT_S:
        output += terminal.read(0.1)
        visible = ESCAPES.sub(b"", output)
        if peer.ready in visible:
            return 1000 * (time.perf_counter() - terminal.started_at), visible
        for question in [question for question in questions if question in visible]:
            terminal.press(questions.pop(question))
    raise TimeoutError(f"{peer.ready!r} did not show; the last of it was {ESCAPES.sub(b'', output)[-300:]!r}")


def _version(peer: Peer, output: bytes, variables: Mapping[str, str]) -> str:
    text = output.decode(errors="replace")
    if peer.version:
        text = subprocess.run(peer.version, env=variables, capture_output=True, text=True, timeout=LIMIT_S).stdout
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else "(unknown version)"


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Yield a home folder with an empty git repository in `work`; remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="kasmon-peer-"))
    try:
        for folder in ("work", "tmux"):
            (home / folder).mkdir(mode=0o700)
        identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")
        for arguments in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "empty")):
            subprocess.run(
                ["git", *arguments], cwd=home / "work", env=_variables(home), check=True, capture_output=True
            )
        yield home
    finally:
        _end(home)
        shutil.rmtree(home, ignore_errors=True)


def _variables(home: Path) -> dict[str, str]:
    return environment({"HOME": str(home), "TMUX_TMPDIR": str(home / "tmux"), "TMPDIR": str(home)})


def _processes(home: Path) -> list[int]:
    return [pid for pid, of in find_processes_with("HOME") if of == str(home)]


def _end(home: Path) -> None:
    """End all processes of *home*, with TERM and then with KILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _processes(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE_S
        while _processes(home) and time.monotonic() < deadline:
            time.sleep(0.02)


def _memory_mb(pid: int) -> float:
    with contextlib.suppress(psutil.Error):  # another dashboard may end a helper of its own at any time
        return held_mb(pid)
    return 0.0


def _figure(name: str, unit: Literal["MB", "% of a core"], value: float, limit: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, limit=limit or None, limit_name="kasmon", samples=1)
