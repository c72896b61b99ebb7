"""Checks of the system below kasmon: its SQLite, and the limits that many agents may reach."""

import resource
import sqlite3
from collections.abc import Iterator
from typing import Final

from kasmon.cli.doctor.result import DoctorCheck
from kasmon.paths import Paths
from kasmon.store.fleet_cache import connect
from kasmon.system.base import System

SAFE_SQLITE: Final = (3, 51, 3)
"""From this version on, two writers in WAL mode cannot corrupt a database; kasmon uses one writer and no WAL."""
ENOUGH: Final = {"open files": 1024, "processes": 512, "terminals": 128, "file watches": 8192, "file watchers": 32}
"""Enough for 50 agents, with a margin."""
RAISE: Final = {
    "open files": "`ulimit -n 4096` before kasmon starts, or LimitNOFILE in the service that starts it.",
    "processes": "`ulimit -u 4096` before kasmon starts.",
}


def sqlite(where: Paths) -> DoctorCheck:
    """Report the SQLite version, and whether the index is intact."""
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    summary = f"SQLite {version}"
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        summary += (
            ": in WAL mode, two writers can corrupt a database of this version; kasmon uses one writer and no WAL"
        )
    if not where.index.exists():
        return DoctorCheck("sqlite", "ok", summary)
    try:
        database = connect(where.index)
        try:
            (whole,) = database.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            database.close()
    except sqlite3.Error as error:
        whole = str(error)
    if whole == "ok":
        return DoctorCheck("sqlite", "ok", f"{summary}; the index is intact")
    text = f"{summary}; the index is damaged ({whole})"
    return DoctorCheck("sqlite", "warn", text, fix="Nothing is lost: the next dashboard rebuilds it.")


def limits(system_here: System) -> Iterator[DoctorCheck]:
    """Check the limits of *system_here* that many agents may reach."""
    found = {
        "open files": _limit(resource.RLIMIT_NOFILE),
        "processes": _limit(resource.RLIMIT_NPROC),
    }
    hints = dict(RAISE)
    for kind, (setting, hint) in system_here.limits.items():
        found[kind] = min((each for each in (found.get(kind), system_here.read_setting(setting)) if each), default=None)
        hints[kind] = hint
    low = {name: value for name, value in found.items() if value is not None and value < ENOUGH[name]}
    if low:
        text = "; ".join(f"{name}: {value} (50 agents need {ENOUGH[name]})" for name, value in low.items())
        yield DoctorCheck("limits", "warn", text, fix=" ".join(hints[name] for name in low))
        return
    summary = ", ".join(f"{value} {name}" for name, value in found.items() if value is not None)
    yield DoctorCheck("limits", "ok", f"enough for 50 agents: {summary}")


def _limit(which: int) -> int | None:
    """Return what this process may raise the limit to; None if it is unlimited."""
    _, hard = resource.getrlimit(which)
    return None if hard == resource.RLIM_INFINITY else hard
