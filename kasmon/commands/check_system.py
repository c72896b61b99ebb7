"""What `kasmon doctor` says of this machine below kasmon: its SQLite, and the limits that many agents run into."""

import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kasmon.commands.check import Check
from kasmon.paths import Places
from kasmon.store.index import connect

SAFE_SQLITE: Final = (3, 51, 3)
"""From this version on, two writers of one database in WAL mode cannot damage it; kasmon uses one writer and no WAL."""
ENOUGH: Final = {"open files": 1024, "processes": 512, "terminals": 128, "file watches": 8192, "file watchers": 32}
"""What 50 agents take, with room to spare."""
RAISE: Final = {
    "open files": "`ulimit -n 4096` before kasmon starts, or LimitNOFILE in the service that starts it.",
    "processes": "`ulimit -u 4096` before kasmon starts.",
    "terminals": "`sysctl kernel.pty.max=4096`.",
    "file watches": "`sysctl fs.inotify.max_user_watches=65536`; without, changes show a few seconds later.",
    "file watchers": "`sysctl fs.inotify.max_user_instances=512`; without, changes show a few seconds later.",
}
OF_THE_KERNEL: Final = {
    "terminals": "kernel/pty/max",
    "file watches": "fs/inotify/max_user_watches",
    "file watchers": "fs/inotify/max_user_instances",
}


def sqlite(where: Places) -> Check:
    """Which SQLite there is, and whether the index is whole."""
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    said = f"SQLite {version}"
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        said += ": two writers can damage a database of this version in WAL mode; kasmon uses one writer and no WAL"
    if not where.index.exists():
        return Check(id="sqlite", level="ok", text=said)
    try:
        database = connect(where.index)
        try:
            (whole,) = database.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            database.close()
    except sqlite3.Error as error:
        whole = str(error)
    if whole == "ok":
        return Check(id="sqlite", level="ok", text=f"{said}; the index is whole")
    text = f"{said}; the index is damaged ({whole})"
    return Check(id="sqlite", level="warn", text=text, fix="Nothing is lost: the next dashboard builds it anew.")


def limits(proc: Path = Path("/proc/sys")) -> Iterator[Check]:
    """Which limits of this system many agents would run into. *proc*: where the kernel's own stand."""
    found = {
        "open files": _limit(resource.RLIMIT_NOFILE),
        "processes": _limit(resource.RLIMIT_NPROC),
        **{name: _of_kernel(proc / path) for name, path in OF_THE_KERNEL.items()},
    }
    low = {name: value for name, value in found.items() if value is not None and value < ENOUGH[name]}
    if low:
        text = "; ".join(f"{name}: {value} of {ENOUGH[name]} that 50 agents take" for name, value in low.items())
        yield Check(id="limits", level="warn", text=text, fix=" ".join(RAISE[name] for name in low))
        return
    said = ", ".join(f"{value} {name}" for name, value in found.items() if value is not None)
    yield Check(id="limits", level="ok", text=f"there is room for 50 agents: {said}")


def _limit(which: int) -> int | None:
    """What this process may raise it to; None where that is anything."""
    _, hard = resource.getrlimit(which)
    return None if hard == resource.RLIM_INFINITY else hard


def _of_kernel(path: Path) -> int | None:
    try:
        return int(os.fsdecode(path.read_bytes()).strip())
    except (OSError, ValueError):
        return None
