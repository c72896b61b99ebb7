"""Which conversation a codex has: the file that it keeps open while one goes on (codex 0.169). Read only."""

import contextlib
import re
from collections.abc import Iterable
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
            found |= {match[1] for file in psutil.Process(pid).open_files() if (match := named(file.path))}
    return found.pop() if len(found) == 1 else ""


def named(path: str) -> re.Match[str] | None:
    """The match of a path that is such a file; its first group is the conversation."""
    return NAME.fullmatch(Path(path).name)
