"""Workarounds for gemini 0.61, which can destroy a conversation that a client resumes.

gemini names the file of a conversation by the minute and the beginning of its id. For `session/load` it first creates a
new file for the same id, then finds the old one and continues in that:

- Within the minute in which the conversation began, both are the same file, and gemini discards its content.
- Otherwise an empty twin remains. The next gemini that starts in this project takes it for a broken conversation, and
  deletes all files of that id: the conversation is lost.

So a file of the current minute is renamed to an earlier one first; gemini reads nothing else of the name. Twins are
deleted before gemini starts and as soon as it has created one. In a terminal, `gemini --resume` reads the conversation
first, and needs no workaround.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kasmon.errors import LaunchError

MINUTE: Final = "%Y-%m-%dT%H-%M"
BACK: Final = 60
"""By how many minutes a file may be dated back."""
SHORT_ID: Final = 8
EMPTY_BYTES: Final = 256 * 1024
"""A larger file is not empty."""
CONTEXT: Final = "<session_context>"
"""Prefix of the message that gemini itself adds to every conversation."""


def leave_minute(conversation: str, variables: Mapping[str, str], now: float) -> None:
    """Make *conversation* loadable in the current minute, even if it began in it. Blocks.

    Raises:
        LaunchError: if its file cannot be renamed; loading it would destroy it.
    """
    minute = time.strftime(MINUTE, time.gmtime(now))
    for file in list(_files(conversation, variables)):
        rest = file.name.removeprefix(f"session-{minute}-")
        if rest == file.name:
            continue
        earlier = (time.strftime(MINUTE, time.gmtime(now - 60 * back)) for back in range(1, BACK))
        names = (file.with_name(f"session-{before}-{rest}") for before in earlier)
        try:
            file.rename(next(name for name in names if not name.exists()))
        except (OSError, StopIteration) as error:
            raise LaunchError(
                "gemini loses a conversation that is resumed in the same minute in which it started.",
                hint=f"Try again in {60 - int(now) % 60} s.",
            ) from error


def remove_twins(conversation: str, variables: Mapping[str, str]) -> None:
    """Delete the empty twin files of *conversation*. Blocks; a file that cannot be deleted remains."""
    files = list(_files(conversation, variables))
    empty = {file for file in files if _is_empty(file, conversation)}
    for twin in empty:
        if any(file.parent == twin.parent and file not in empty for file in files):
            try:
                twin.unlink()
            except OSError:
                continue


def _files(conversation: str, variables: Mapping[str, str]) -> Iterator[Path]:
    home = variables.get("GEMINI_CLI_HOME") or variables.get("HOME")
    if home and conversation.replace("-", "").isalnum():
        chats = (Path(home) / ".gemini" / "tmp").glob(f"*/chats/session-*-{conversation[:SHORT_ID]}.json*")
        yield from sorted(file for file in chats if file.is_file())


def _is_empty(file: Path, conversation: str) -> bool:
    """Whether *file* is one of *conversation* without any message of the user or the model."""
    try:
        if file.stat().st_size > EMPTY_BYTES:
            return False
        records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError, RecursionError):
        return False
    is_its_own = bool(records) and isinstance(records[0], dict) and records[0].get("sessionId") == conversation
    return is_its_own and not any(_says_something(record) for record in records)


def _says_something(record: Any) -> bool:
    """Whether *record* is or holds a message that gemini did not add itself."""
    if not isinstance(record, dict) or "type" in record:
        return True
    changes = record.get("$set", {})
    messages = [*_list(record.get("messages")), *_list(changes.get("messages") if isinstance(changes, dict) else 0)]
    return not isinstance(changes, dict) or not all(_is_context(message) for message in messages)


def _list(messages: object) -> list[Any]:
    """Return *messages* as a list; an unknown type counts as one unknown message."""
    return messages if isinstance(messages, list) else [] if messages is None else [messages]


def _is_context(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) and message.get("type") == "user" else None
    parts = content if isinstance(content, list) else [{"text": content}]
    return all(isinstance(part, dict) and str(part.get("text", "")).startswith(CONTEXT) for part in parts)
