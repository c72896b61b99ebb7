"""Claude Code's own registry: `sessions/<pid>.json` in its config folder, where it writes what it does. Read only.

It is the best passive source: right in every state, and nobody has to set anything up. The file stays behind when the
agent is killed, so it counts only for a process that is there, with the start time that the file names.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

from kasmon.model.permission import RequestKind
from kasmon.process_identity import fields
from kasmon.sanitize import clean_line

LARGEST: Final = 64 * 1024
STARTED_WITHIN_S: Final = 5.0
"""Where only the clock tells when a process started, the file may be so much later, in seconds."""
STATES: Final = {"busy": "working", "idle": "idle|limited", "waiting": "asking"}
"""What its status says. It waits for a prompt also where its usage limit is reached: that only the screen tells."""
WAITING_FOR: Final = {"permission prompt": RequestKind.PERMISSION, "input needed": RequestKind.QUESTION}
BEGUN: Final = frozenset({"busy", "waiting"})
"""While it says so, its conversation has a prompt: one that has none cannot be resumed."""
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SILENT: Final = "unclear"


class RegistryStatus(NamedTuple):
    """What the registry says of one agent."""

    value: str = SILENT
    asking: RequestKind | None = None
    text: str = ""
    version: str = ""
    conversation: str = ""
    """Its id of the conversation, once that has something to go on with; else empty."""


class _Entry(msgspec.Struct, rename="camel"):
    """What we read of it; everything else in there is none of our business."""

    pid: int = 0
    proc_start: str = ""
    started_at: float = 0.0
    status: str = ""
    waiting_for: str = ""
    version: str = ""
    session_id: str = ""


_decoder = msgspec.json.Decoder(_Entry)


def folder_of(variables: Mapping[str, str]) -> Path | None:
    """The folder of the registry for an agent with these variables; None without a home."""
    if config := variables.get("CLAUDE_CONFIG_DIR"):
        return Path(config) / "sessions"
    home = variables.get("HOME")
    return Path(home) / ".claude" / "sessions" if home else None


def variables_of(pid: int) -> Mapping[str, str]:
    """The environment of process *pid*; empty where nobody may look."""
    with contextlib.suppress(psutil.Error, OSError):
        return psutil.Process(pid).environ()
    return {}


def found(folder: Path, pids: Iterable[int | str]) -> Path | None:
    """The file in *folder* of the first of *pids* that has one."""
    return next((path for pid in pids if (path := folder / f"{pid}.json").is_file()), None)


def read(path: Path, pid: int | None = None) -> RegistryStatus:
    """What the file at *path* says; `SILENT` where it is gone, broken, or left behind by a process that is gone.

    *pid*: the process that calls itself as the file says, where that is another number here. The file may be foreign:
    no link is followed.
    """
    try:
        with open(path, "rb", opener=_plainly) as file:
            entry = _decoder.decode(file.read(LARGEST))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return RegistryStatus()
    if path.stem != str(entry.pid) or not _is_its(entry, entry.pid if pid is None else pid):
        return RegistryStatus()
    value = STATES.get(entry.status, SILENT)
    asking = WAITING_FOR.get(entry.waiting_for, RequestKind.QUESTION) if value == "asking" else None
    text = clean_line(entry.waiting_for)[:200] if value == "asking" else ""
    begun = entry.status in BEGUN and UUID.fullmatch(entry.session_id) is not None
    return RegistryStatus(value, asking, text, clean_line(entry.version)[:40], entry.session_id if begun else "")


def _plainly(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_its(entry: _Entry, pid: int) -> bool:
    """Whether the process that has the pid now is the one that wrote the file."""
    try:
        if sys.platform == "linux" and entry.proc_start:
            told = fields(pid)
            return told is not None and told[0] != b"Z" and told[19].decode() == entry.proc_start
        began = float(psutil.Process(pid).create_time())
    except (OSError, IndexError, psutil.Error):
        return False
    return -1.0 <= entry.started_at / 1000 - began <= STARTED_WITHIN_S * 12


def changed(path: Path) -> int:
    """What differs when the file was written anew, in nanoseconds; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
