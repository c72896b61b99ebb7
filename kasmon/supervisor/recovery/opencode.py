"""OpenCode's conversations, in a SQLite database of its data folder; read only (opencode 1.18)."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from kasmon.backends.common.json_access import text
from kasmon.store.fleet_cache import connect
from kasmon.supervisor.recovery.conversation import StoredConversation, build_conversation

SESSIONS = "SELECT id, directory, time_updated FROM session WHERE parent_id IS NULL"
SAID = (
    "SELECT message.data, part.data FROM part JOIN message ON message.id = part.message_id"
    " WHERE part.session_id = ? ORDER BY message.time_created, message.id, part.time_created, part.id"
)


def conversations(folder: Path, _: str = "*") -> Iterator[StoredConversation]:
    """Yield all conversations in opencode's data *folder*; none if its database is unreadable or has another schema."""
    file = folder / "opencode.db"
    if not file.is_file():
        return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(file)) as database:
        for id_, directory, at in database.execute(SESSIONS).fetchall():
            prompts, last_text = _read_messages(database, id_)
            if isinstance(id_, str) and isinstance(directory, str) and prompts:
                yield build_conversation(id_, directory, prompts, last_text, float(at or 0) / 1000)


def _read_messages(database: sqlite3.Connection, session: str) -> tuple[list[str], str]:
    """Return the user's prompts, and the agent's last message."""
    prompts, last_text = [], ""
    for message, part in database.execute(SAID, (session,)):
        try:
            role, part_json = text(json.loads(message), "role"), json.loads(part)
        except (ValueError, RecursionError, TypeError, AttributeError):
            continue
        if not isinstance(part_json, dict) or part_json.get("type") != "text" or part_json.get("synthetic"):
            continue
        if role == "user":
            prompts.append(text(part_json, "text"))
        elif role == "assistant":
            last_text = text(part_json, "text") or last_text
    return prompts, last_text
