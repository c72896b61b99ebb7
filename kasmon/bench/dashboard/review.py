"""Measures the time from the key to a review of 10,000 changed lines, and from there to its last line."""

import subprocess
from pathlib import Path
from typing import Final

from kasmon.bench.dashboard.startup import warm
from kasmon.bench.support.figure import Figure, ratio, timed
from kasmon.bench.support.fleet import create_sessions, scratch
from kasmon.bench.support.process_cost import run_ms
from kasmon.bench.support.terminal import environment, open_dashboard, read_for
from kasmon.paths import write_private

CHANGED: Final = 10_000
"""So many lines are removed or added."""
RUN: Final = 5
"""Lines of a run of changed lines; as many unchanged ones and more are between two."""
FIRST, LAST = "context-of-the-first-hunk", "context-of-the-last-hunk"


def measure_review(rounds: int, changed: int = CHANGED) -> list[Figure]:
    """Measure both in a file of which every other run of lines changed; the limit is git's own time for the diff."""
    with scratch() as paths:
        repo = paths.state.parent / "review-repo"
        _create_repository(repo, changed)
        with create_sessions(paths, 1, workdir=str(repo)):
            own = environment(paths.environment_variables())
            warm(paths, own)
            opened, jumped, limits = [], [], []
            for _ in range(rounds):
                limits.append(run_ms(["git", "-C", str(repo), "diff", "HEAD"], own))
                with open_dashboard(own) as terminal:
                    terminal.until(b"session-0000")
                    read_for(terminal, 1.5)
                    opened.append(terminal.press_until(b"D", FIRST.encode()))
                    read_for(terminal, 0.5)
                    jumped.append(terminal.press_until(b"G", LAST.encode()))
    note = "from the key D; reading the diff and importing the review are part of it"
    return [
        timed(f"{changed:,} changed lines, to the review", opened, 300, note),
        timed(f"{changed:,} changed lines, to the last line", jumped, 100, "from the key G in the review"),
        ratio(f"{changed:,} changed lines, against git's own diff", opened, limits, "git diff", None),
    ]


def _create_repository(repo: Path, changed: int) -> None:
    """Create a repository with one commit, and change *changed* lines of its file without committing that."""
    repo.mkdir(mode=0o700)
    runs = changed // (2 * RUN)
    between = [f"unchanged {number}" for number in range(2 * RUN)]

    def content(text: str) -> str:
        lines = [FIRST]
        for number in range(runs):
            lines += [f"{text} {number} {step}" for step in range(RUN)]
            lines += between
        return "\n".join((*lines[: -len(between)], LAST)) + "\n"

    git = ("git", "-C", str(repo), "-c", "user.name=bench", "-c", "user.email=bench")
    write_private(repo / "file.txt", content("before").encode())
    for arguments in (("init", "--quiet"), ("add", "file.txt"), ("commit", "--quiet", "-m", "before")):
        subprocess.run((*git, *arguments), check=True)
    write_private(repo / "file.txt", content("after").encode())
