"""Which conversation a codex has: the file that it keeps open while one goes on (codex 0.169). Read only."""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NAME: Final = re.compile(rf"rollout-.*-({UUID})\.jsonl")


def rollout(pids: Iterable[int]) -> str:
    """The id of the one conversation that *pids* have open; empty where there is none, or more than one."""
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            found |= {match[1] for path in _open(pid) if (match := named(path))}
    return found.pop() if len(found) == 1 else ""


def _open(pid: int) -> Iterator[str]:
    """The files that *pid* has open, by their paths as it has them: in a sandbox these are others than here."""
    if sys.platform != "linux":
        yield from (file.path for file in psutil.Process(pid).open_files())
        return
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield os.readlink(handle)  # noqa: PTH115 (it need not be a path of ours)


def named(path: str) -> re.Match[str] | None:
    """The match of a path that is such a file; its first group is the conversation."""
    return NAME.fullmatch(Path(path).name)
