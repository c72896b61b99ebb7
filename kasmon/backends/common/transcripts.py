"""The transcripts that claude and codex keep of their conversations: JSON lines. Read only.

Neither format is documented; what cannot be parsed counts as missing.
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Final

from kasmon.backends.common.json_access import Table, rows, table, text
from kasmon.paths import open_regular

NO_PROMPT: Final = ("<command-", "<local-command-", "<system-reminder>", "<task-notification>", "[Request interrupted")
"""Prefixes of texts in the user's name in claude's transcript that are not prompts."""
MARKS: Final = (b'"type":"user"', b'"UserMessage"', b'"user_message"')
"""Markers of lines that may hold a prompt; other lines can be long, and are not parsed."""
MOST_BYTES: Final = 4 << 20
"""How much is read at once, and of a transcript that is read for the first time."""


def claude_folder(variables: Mapping[str, str]) -> Path:
    """Return the folder in which a claude with *variables* stores its settings and its conversations."""
    return Path(variables.get("CLAUDE_CONFIG_DIR") or Path(variables.get("HOME", "/"), ".claude"))


def claude_transcript(config: Path, conversation: str) -> Path | None:
    """Return the file that holds *conversation* in claude's folder *config*; None if there is none."""
    if not conversation or "/" in conversation:
        return None
    try:
        found = sorted(config.glob(f"projects/*/{escape(conversation)}.jsonl"))
        return next((file for file in found if file.is_file()), None)
    except OSError:
        return None


def claude_prompt(entry: Table) -> str:
    """Return the prompt in a line of claude's transcript; empty if it holds none."""
    is_own = entry.get("isMeta") or entry.get("isSidechain") or entry.get("isCompactSummary")
    if entry.get("type") != "user" or is_own:
        return ""
    message = table(entry, "message")
    prompt = text(message, "content") or "\n".join(
        text(part, "text") for part in rows(message, "content") if part.get("type") == "text"
    )
    return "" if prompt.lstrip().startswith(NO_PROMPT) else prompt


def codex_prompt(payload: Table) -> str:
    """Return the prompt in the *payload* of a line of codex's rollout; empty if it holds none."""
    if payload.get("type") == "user_message":  # the format of older versions
        return text(payload, "message")
    item = table(payload, "item")
    if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return ""
    return "\n".join(text(part, "text") for part in rows(item, "content") if text(part, "text"))


def parse_object(line: bytes) -> Table:
    """Return the JSON object in *line*; empty if it cannot be parsed."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def parse_time(stamp: str) -> float:
    """Parse a time such as `2026-11-23T13:55:46.128Z` to seconds since the epoch; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return 0.0


class TranscriptTail:
    """Reads the prompts that one agent adds to its transcript; those from before *since* are omitted."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._path = ""
        self._read_to = 0

    def read(self, path: str, file: Path) -> Iterator[str]:
        """Yield the prompts since the last call, oldest first. *file* opens the transcript, which is called *path*.

        Raises:
            OSError: if it cannot be read.
        """
        with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as lines:
            size = os.fstat(lines.fileno()).st_size
            if path != self._path or size < self._read_to:
                self._path, self._read_to = path, max(0, size - MOST_BYTES)
            data = os.pread(lines.fileno(), MOST_BYTES, self._read_to)
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) == MOST_BYTES else 0)  # part of a line that is too long
        self._read_to += end
        for line in data[:end].split(b"\n"):
            entry = parse_object(line) if any(mark in line for mark in MARKS) else {}
            if parse_time(text(entry, "timestamp")) >= self._since and (
                prompt := claude_prompt(entry) or codex_prompt(table(entry, "payload"))
            ):
                yield prompt
