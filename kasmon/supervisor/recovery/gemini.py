"""Gemini's chats, `tmp/<project>/chats/session-*.jsonl` in its folder; read only (gemini 0.61).

`projects.json` maps each folder to a project's short name.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kasmon.backends.common.json_access import rows, table, text
from kasmon.supervisor.recovery.conversation import StoredConversation, build_conversation, read_all, read_objects

CONTEXT = "<session_context>"
"""The prefix of the text that gemini itself puts at the start of each conversation."""


def conversations(folder: Path, _: str = "*") -> Iterator[StoredConversation]:
    """Yield the conversations in gemini's *folder*, whatever their ids are; unreadable ones are omitted."""
    try:
        projects = table(json.loads((folder / "projects.json").read_bytes()), "projects")
    except (OSError, ValueError, RecursionError, AttributeError):
        return
    for directory, name in projects.items():
        if not isinstance(name, str) or "/" in name or name.startswith("."):
            continue
        yield from read_all(
            folder.glob(f"tmp/{name}/chats/session-*.jsonl"), partial(conversation, directory=directory)
        )


def conversation(file: Path, directory: str) -> StoredConversation | None:
    """Return the conversation in *file*, of the project in *directory*; None if it has no prompt. Raises `OSError`."""
    id_ = last_text = ""
    prompts: dict[str, str] = {}
    for entry in read_objects(file):
        id_ = id_ or text(entry, "sessionId")
        for message in (entry, *rows(table(entry, "$set"), "messages")):
            if message.get("type") == "user" and (prompt := _text_of(message)) and not prompt.startswith(CONTEXT):
                prompts[text(message, "id")] = prompt
            elif message.get("type") == "gemini":
                last_text = text(message, "content") or last_text
    return (
        build_conversation(id_, directory, list(prompts.values()), last_text, file.stat().st_mtime)
        if id_ and prompts
        else None
    )


def _text_of(message: dict[str, Any]) -> str:
    return text(message, "content") or "\n".join(text(part, "text") for part in rows(message, "content")).strip()
