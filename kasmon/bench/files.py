"""Measures work on many files: checkpoints of a large workspace, the collision detector, and worktrees of sessions."""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kasmon.bench.support.figure import Figure, percentile, ratio, timed, took_ms
from kasmon.bench.support.fleet import scratch
from kasmon.bench.support.process_cost import run_ms
from kasmon.bench.support.terminal import KASMON, environment
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.protocol import SavedInterpreters
from kasmon.supervisor.worktrees.branch_state import BranchStates
from kasmon.supervisor.worktrees.collisions import CollisionDetector
from kasmon.supervisor.worktrees.recognized_worktree import recognize

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
        points.create(str(workspace), 0, "before", SavedInterpreters())
        same: list[float] = []
        other: list[float] = []
        for turn in range(rounds):
            time.sleep(SETTLED_S)
            same.append(took_ms(partial(points.create, str(workspace), turn, "after", SavedInterpreters())))
            write_private(workspace / f"new-{turn}", b"x" * 1000)
            other.append(took_ms(partial(points.create, str(workspace), turn, "after", SavedInterpreters())))
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


TREES, BRANCHES, TRACKED, LINES = 20, 30, 300, 200
WHO: Final = ("-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false")


def measure_sweep(rounds: int) -> Figure:
    """Measure a pass over 20 worktrees of a repository of 300 files, each with changes."""
    with tempfile.TemporaryDirectory(prefix="kasmon-bench-") as folder:
        sessions = _worktrees(Path(folder), TREES)
        detector = CollisionDetector()
        hits = detector.sweep(sessions).hits
        times = [took_ms(lambda: detector.sweep(sessions)) for _ in range(rounds)]
    note = f"{len(hits)} of them collide; where one changed, only that one is looked at"
    return timed(f"the radar over {TREES} worktrees, a whole pass", times, 300, note)


def measure_branch_states() -> list[Figure]:
    """Measure the processor time to read the states of 30 branches: first, unchanged, and after each changed."""
    with tempfile.TemporaryDirectory(prefix="kasmon-bench-") as folder:
        sessions = _worktrees(Path(folder), BRANCHES)
        trees = [tree for session in sessions if (tree := recognize(session.workdir)) is not None]
        states = BranchStates()
        first = _processor_ms(lambda: states.read(trees))
        unchanged = _processor_ms(lambda: states.read(trees, ()))
        for tree in trees:
            _write(Path(tree.path) / "file1.txt", ["changed"])
        changed = _processor_ms(lambda: states.read(trees, [tree.path for tree in trees]))
        count = len(states.read(trees, ()))
    name = f"states of {BRANCHES} worktrees, processor time"
    return [
        timed(f"{name}: where files changed in each", [changed], 500, f"{count} were read"),
        timed(f"{name}: nothing changed", [unchanged], 50),
        timed(f"{name}: the first time", [first], None),
    ]


def measure_new_worktree(rounds: int) -> Figure:
    """Measure `kasmon new --worktree`, against `git worktree add` and `kasmon new` after each other."""
    both: list[float] = []
    own: list[float] = []
    with scratch() as paths, tempfile.TemporaryDirectory(prefix="kasmon-bench-") as folder:
        repo = _repository(Path(folder))
        variables = environment(paths.environment_variables())
        new = [*KASMON, "new", "--agent", "scripted", "--mode", "sdk"]
        for number in range(rounds + 1):
            tree = str(Path(folder) / f"tree{number}")
            added = run_ms(["git", "-C", str(repo), "worktree", "add", "-q", "-b", f"b{number}", tree], variables)
            added += run_ms([*new, f"plain-{number}", "--dir", tree], variables, check=True)
            took = run_ms([*new, f"own-{number}", "--worktree", "--dir", str(repo)], variables, check=True)
            if number:
                both.append(added)
                own.append(took)
    return ratio("kasmon new --worktree", own, both, "git worktree add, then kasmon new", 1.5)


def _processor_ms(act: Callable[[], object]) -> float:
    """Call *act* and return the processor time that it and the programs it ran used, in ms."""
    began = os.times()
    act()
    return 1000 * sum(after - before for after, before in zip(os.times()[:4], began[:4], strict=True))


def _repository(root: Path) -> Path:
    repo = root / "repo"
    repo.mkdir(mode=0o700)
    _run_git(repo, "init", "-q")
    for number in range(TRACKED):
        _write(repo / f"file{number}.txt", [f"line {line}" for line in range(LINES)])
    _run_git(repo, "add", ".")
    _run_git(repo, "commit", "-qm", "begin")
    return repo


def _worktrees(root: Path, count: int) -> list[Session]:
    repo = _repository(root)
    sessions = []
    for number in range(count):
        tree = root / f"tree{number}"
        _run_git(repo, "worktree", "add", "-q", "-b", tree.name, str(tree))
        for file in (0, number):
            _write(tree / f"file{file}.txt", [f"line {line}{'!' * (line == number)}" for line in range(LINES)])
        sessions.append(Session(id=SessionId(tree.name), workdir=str(tree)))
    return sessions


def _write(path: Path, lines: list[str]) -> None:
    write_private(path, "\n".join(lines).encode())


def _run_git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True)
