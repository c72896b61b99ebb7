"""The unfinished tool calls in an opencode's database (opencode 1.18). Read only."""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kasmon.store.fleet_cache import connect

MOST: Final = 40
"""How many of the newest parts of its conversations are read."""
LONGEST: Final = 256 * 1024
PARTS: Final = (
    "SELECT data FROM part WHERE session_id IN (SELECT id FROM session ORDER BY time_updated DESC LIMIT 8)"
    ' AND length(data) <= ? AND data LIKE \'{"type":"tool"%\' AND data LIKE \'%"status":"running"%\''
    " ORDER BY time_created DESC LIMIT ?"
)


def waiting(variables: Mapping[str, str], home: Path | None = None) -> list[object]:
    """Return the inputs of the unfinished tool calls; none if the database is missing or has another schema. Blocks.

    The database may be shared by several opencodes: their calls are included.

    Args:
        variables: the agent's environment.
        home: its home as seen from here, where it has one of its own.
    """
    data = str(home / ".local/share") if home else variables.get("XDG_DATA_HOME", "")
    file = Path(data or Path(variables.get("HOME", "")) / ".local/share") / "opencode" / "opencode.db"
    found: list[object] = []
    with contextlib.suppress(OSError, sqlite3.Error, ValueError):
        if file.is_absolute() and file.is_file() and not file.is_symlink():
            with contextlib.closing(connect(file)) as database:
                for (text,) in database.execute(PARTS, (LONGEST, MOST)).fetchall():
                    with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError):
                        state = json.loads(text)["state"]
                        if state["status"] == "running":
                            found.append(state["input"])
    return found
