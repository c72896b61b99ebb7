"""Measures one pass of the collision detector."""

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from kasmon.bench.support.figure import Figure, percentile
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import write_private
from kasmon.supervisor.worktrees.collisions import CollisionDetector

TREES, FILES, LINES = 20, 300, 200
WHO: Final = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")


def measure_sweep(rounds: int) -> Figure:
    """Measure a pass over 20 worktrees of a repository of 300 files, each with changes."""
    with tempfile.TemporaryDirectory(prefix="kasmon-bench-") as scratch:
        sessions = _worktrees(Path(scratch))
        radar, times = CollisionDetector(), []
        hits = radar.sweep(sessions).hits
        for _ in range(rounds):
            began = time.perf_counter()
            radar.sweep(sessions)
            times.append(1000 * (time.perf_counter() - began))
    middle = percentile(times, 0.5)
    return Figure(
        name=f"the radar over {TREES} worktrees, a whole pass",
        value=middle,
        unit="ms",
        target=300,
        samples=rounds,
        note=f"{len(hits)} of them collide; where one changed, only that one is looked at",
    )


def _worktrees(root: Path) -> list[Session]:
    repo = root / "repo"
    repo.mkdir(mode=0o700)
    _run_git(repo, "init", "-q")
    for number in range(FILES):
        _write(repo / f"file{number}.txt", [f"line {line}" for line in range(LINES)])
    _run_git(repo, "add", ".")
    _run_git(repo, "commit", "-qm", "begin")
    sessions = []
    for number in range(TREES):
        tree = root / f"tree{number}"
        _run_git(repo, "worktree", "add", "-q", "-b", tree.name, str(tree))
        for file in (0, number):
            _write(tree / f"file{file}.txt", [f"line {line}{'!' * (line == number)}" for line in range(LINES)])
        sessions.append(Session(id=SessionId(tree.name), workdir=str(tree)))
    return sessions


def _write(path: Path, lines: list[str]) -> None:
    write_private(path, "\n".join(lines).encode())


def _run_git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True)
