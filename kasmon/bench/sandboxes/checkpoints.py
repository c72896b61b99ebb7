"""Measures a checkpoint of a large workspace in which no file, or one, has changed since the previous checkpoint."""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from kasmon.bench.support.figure import Figure, percentile
from kasmon.paths import write_private
from kasmon.sandbox.checkpoint.checkpoints import CheckpointStore
from kasmon.sandbox.guest_client.protocol import SavedInterpreters

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
            same.append(_taken(points, workspace, turn))
            write_private(workspace / f"new-{turn}", b"x" * 1000)
            other.append(_taken(points, workspace, turn))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    middle = percentile(same, 0.5)
    return [
        Figure(
            name=f"a checkpoint of an unchanged workspace of {size_bytes / 1e6:.0f} MB, p50",
            value=middle,
            unit="ms",
            target=50,
            samples=rounds,
            note=f"p95 {percentile(same, 0.95):.0f} ms; where one file is new, p50 {percentile(other, 0.5):.0f} ms",
        )
    ]


def _taken(points: CheckpointStore, workspace: Path, turn: int) -> float:
    began = time.perf_counter()
    points.take(str(workspace), turn, "after", SavedInterpreters())
    return 1000 * (time.perf_counter() - began)


def _fill(workspace: Path, files: int, size_bytes: int) -> None:
    rng = random.Random(1)
    size = size_bytes // files
    for number in range(files):
        folder = workspace / f"d{number % 40}" / f"s{number % 7}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = rng.randbytes(size) if number % 7 < 3 else (f"some text {number}\n" * size).encode()[:size]
        write_private(folder / f"f{number}", content)
