"""The unfinished tool calls in an opencode's database (opencode 1.18). Read only."""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kasmon.store.fleet_cache import connect

MOST: Final = 40
"""With more unfinished calls in its conversations, none is known."""
LONGEST: Final = 256 * 1024
"""With an unfinished call that is longer, none is known."""
PARTS: Final = (
    "SELECT CASE WHEN length(data) <= ? THEN data END FROM part"
    " WHERE session_id IN (SELECT id FROM session ORDER BY time_updated DESC LIMIT 8)"
    ' AND data LIKE \'{"type":"tool"%\' AND data LIKE \'%"status":"running"%\' LIMIT ?'
)


def waiting(variables: Mapping[str, str], home: Path | None = None) -> list[object]:
    """Return the inputs of all unfinished tool calls; none if one of them is not known. Blocks.

    None is known if the database is missing or has another schema. Several opencodes may share it: their calls are
    included.

    Args:
        variables: the agent's environment.
        home: its home as seen from here, where it has one of its own.
    """
    data = str(home / ".local/share") if home else variables.get("XDG_DATA_HOME", "")
    file = Path(data or Path(variables.get("HOME", "")) / ".local/share") / "opencode" / "opencode.db"
    try:
        if not file.is_absolute() or not file.is_file() or file.is_symlink():
            return []
        with contextlib.closing(connect(file)) as database:
            texts = [text for (text,) in database.execute(PARTS, (LONGEST, MOST + 1))]
        states = [json.loads(text)["state"] for text in texts]
        inputs = [state["input"] for state in states if state["status"] == "running"]
    except (OSError, sqlite3.Error, ValueError, RecursionError, LookupError, TypeError):
        return []
    return inputs if len(texts) <= MOST else []
