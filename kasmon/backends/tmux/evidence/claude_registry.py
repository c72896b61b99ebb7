"""Claude Code's own registry: `sessions/<pid>.json` in its config folder, where it writes its status. Read only.

It is the best passive source: correct in every state, without any setup. The file remains when the agent is killed,
so it counts only for a running process with the start time that the file names.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

from kasmon import system
from kasmon.backends.common.transcripts import claude_folder
from kasmon.model.permission import RequestKind
from kasmon.paths import open_regular
from kasmon.sanitize import clean_line

LARGEST: Final = 64 * 1024
STARTED_WITHIN_S: Final = 60.0
"""Where only the clock gives a process's start, the file's time may be this much later, in seconds."""
STATES: Final = {"busy": "working", "idle": "idle|limited", "waiting": "asking"}
"""Its status values. It also waits for a prompt when its usage limit is reached: only the screen shows that."""
WAITING_FOR: Final = {"permission prompt": RequestKind.PERMISSION, "input needed": RequestKind.QUESTION}
BEGUN: Final = frozenset({"busy", "waiting"})
"""Statuses in which its conversation has a prompt: one without a prompt cannot be resumed."""
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SILENT: Final = "unclear"


class RegistryStatus(NamedTuple):
    value: str = SILENT
    asking: RequestKind | None = None
    text: str = ""
    version: str = ""
    conversation: str = ""
    """The id of its conversation, once that can be resumed; else empty."""


class _Entry(msgspec.Struct, rename="camel"):
    """The fields that kasmon reads; all others are ignored."""

    pid: int = 0
    proc_start: str = ""
    started_at: float = 0.0
    status: str = ""
    waiting_for: str = ""
    version: str = ""
    session_id: str = ""
    job_id: str = ""


_decoder = msgspec.json.Decoder(_Entry)


def folder_of(variables: Mapping[str, str]) -> Path | None:
    """Return the registry's folder for an agent with these variables; None without a home."""
    has_folder = variables.get("CLAUDE_CONFIG_DIR") or variables.get("HOME")
    return claude_folder(variables) / "sessions" if has_folder else None


def find_entry(folder: Path, pids: Iterable[int | str]) -> Path | None:
    """Return the file in *folder* of the first of *pids* that has one."""
    return next((path for pid in pids if (path := folder / f"{pid}.json").is_file()), None)


def find_background(folder: Path, background: str) -> Path | None:
    """Return the file in *folder* of the running process of the background session with the id *background*."""
    for path in folder.glob("*.json"):
        entry = _read_entry(path)
        if entry is not None and entry.job_id == background and is_current(path):
            return path
    return None


def is_current(path: Path) -> bool:
    """Whether the process that wrote the file at *path* runs."""
    entry = _read_entry(path)
    return entry is not None and path.stem == str(entry.pid) and _matches_process(entry, entry.pid)


def read(path: Path, pid: int | None = None) -> RegistryStatus:
    """Return the status in the file at *path*; `SILENT` if it is missing, broken, or left by a process that has ended.

    *pid*: the process that the file describes, if its pid differs here (in a sandbox). The file may be foreign: no link
    is followed.
    """
    entry = _read_entry(path)
    if entry is None:
        return RegistryStatus()
    if path.stem != str(entry.pid) or not _matches_process(entry, entry.pid if pid is None else pid):
        return RegistryStatus()
    value = STATES.get(entry.status, SILENT)
    asking = WAITING_FOR.get(entry.waiting_for, RequestKind.QUESTION) if value == "asking" else None
    text = clean_line(entry.waiting_for)[:200] if value == "asking" else ""
    has_prompt = entry.status in BEGUN and UUID.fullmatch(entry.session_id) is not None
    return RegistryStatus(value, asking, text, clean_line(entry.version)[:40], entry.session_id if has_prompt else "")


def _read_entry(path: Path) -> _Entry | None:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return _decoder.decode(file.read(LARGEST))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _matches_process(entry: _Entry, pid: int) -> bool:
    """Whether the process that now has the pid is the one that wrote the file."""
    try:
        if system.HERE.reports_ticks and entry.proc_start:  # claude's other forms of it were never seen
            return system.HERE.read_start_text(pid) == entry.proc_start
        began = float(psutil.Process(pid).create_time())
    except (OSError, IndexError, psutil.Error):
        return False
    return -1.0 <= entry.started_at / 1000 - began <= STARTED_WITHIN_S
