"""Measures work on many files: a checkpoint of a large workspace, and one pass of the collision detector."""

import random
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from kasmon.bench.support.figure import Figure, percentile, timed, took_ms
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.protocol import SavedInterpreters
from kasmon.supervisor.worktrees.collisions import CollisionDetector

FILES: Final = 741
BYTES: Final = 70_000_000
SETTLED_S: Final = 0.1
"""A checkpoint reads a file written just before it again, since a rewrite might not change the mtime."""


def measure_checkpoints(rounds: int, files: int = FILES, size_bytes: int = BYTES) -> list[Figure]:
    """Measure checkpoints of *files* files with *size_bytes* in total, three sevenths of them random."""
    root = Path(tempfile.mkdtemp(prefix="kasmon-bench-"))
    try:
        workspace = root / "workspace"
        _fill(workspace, files, size_bytes)
        points = CheckpointStore(root / "checkpoints")
        points.take(str(workspace), 0, "before", SavedInterpreters())
        same: list[float] = []
        other: list[float] = []
        for turn in range(rounds):
            time.sleep(SETTLED_S)
            same.append(took_ms(partial(points.take, str(workspace), turn, "after", SavedInterpreters())))
            write_private(workspace / f"new-{turn}", b"x" * 1000)
            other.append(took_ms(partial(points.take, str(workspace), turn, "after", SavedInterpreters())))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    note = f"p95 {percentile(same, 0.95):.0f} ms; where one file is new, p50 {percentile(other, 0.5):.0f} ms"
    return [timed(f"a checkpoint of an unchanged workspace of {size_bytes / 1e6:.0f} MB, p50", same, 50, note)]


def _fill(workspace: Path, files: int, size_bytes: int) -> None:
    rng = random.Random(1)
    size = size_bytes // files
    for number in range(files):
        folder = workspace / f"d{number % 40}" / f"s{number % 7}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = rng.randbytes(size) if number % 7 < 3 else (f"some text {number}\n" * size).encode()[:size]
        write_private(folder / f"f{number}", content)


TREES, TRACKED, LINES = 20, 300, 200
WHO: Final = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")


def measure_sweep(rounds: int) -> Figure:
    """Measure a pass over 20 worktrees of a repository of 300 files, each with changes."""
    with tempfile.TemporaryDirectory(prefix="kasmon-bench-") as scratch:
        sessions = _worktrees(Path(scratch))
        detector = CollisionDetector()
        hits = detector.sweep(sessions).hits
        times = [took_ms(lambda: detector.sweep(sessions)) for _ in range(rounds)]
    note = f"{len(hits)} of them collide; where one changed, only that one is looked at"
    return timed(f"the radar over {TREES} worktrees, a whole pass", times, 300, note)


def _worktrees(root: Path) -> list[Session]:
    repo = root / "repo"
    repo.mkdir(mode=0o700)
    _run_git(repo, "init", "-q")
    for number in range(TRACKED):
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
