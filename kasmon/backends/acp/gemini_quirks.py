"""What gemini 0.61 does to a conversation that a client goes on with, and how it survives that.

gemini names the file of a conversation by the minute and the beginning of its id. For `session/load` it first begins a
new file for the same id, then finds the old one and goes on in that:

- Within the minute in which the conversation began both are the same file, and it forgets what is in there.
- Else an empty twin stays behind. The next gemini that starts in this project takes it for a broken conversation, and
  deletes all files of that id: the conversation is gone.

So a file of this minute gets the name of an earlier one before, which is all that gemini reads of its name, and twins
are taken away before gemini starts and as soon as it has made one. In a terminal `gemini --resume` reads the
conversation first, and needs none of that.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kasmon.errors import LaunchError

MINUTE: Final = "%Y-%m-%dT%H-%M"
BACK: Final = 60
"""How many minutes back a file may be called."""
SHORT_ID: Final = 8
EMPTY_BYTES: Final = 256 * 1024
"""A file longer than this holds something."""
CONTEXT: Final = "<session_context>"
"""How the message begins that gemini puts into every conversation itself."""


def leave_minute(conversation: str, variables: Mapping[str, str], now: float) -> None:
    """See to it that *conversation* can be loaded in this minute, also where it has begun in it. Blocks.

    Args:
        variables: gemini's environment.
        now: seconds since the epoch.

    Raises:
        LaunchError: if its file cannot have another name; loading it would destroy it.
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
    """Delete the empty files that stand beside the one of *conversation*. Blocks; a file that cannot go stays."""
    files = list(_files(conversation, variables))
    empty = {file for file in files if _is_empty(file, conversation)}
    for twin in empty:
        if any(file.parent == twin.parent and file not in empty for file in files):
            try:
                twin.unlink()
            except OSError:
                continue


def _files(conversation: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """The files that gemini may keep *conversation* in, in whatever project."""
    home = variables.get("GEMINI_CLI_HOME") or variables.get("HOME")
    if home and conversation.replace("-", "").isalnum():
        chats = (Path(home) / ".gemini" / "tmp").glob(f"*/chats/session-*-{conversation[:SHORT_ID]}.json*")
        yield from sorted(file for file in chats if file.is_file())


def _is_empty(file: Path, conversation: str) -> bool:
    """Whether *file* is one of *conversation* in which nobody has said anything yet."""
    try:
        if file.stat().st_size > EMPTY_BYTES:
            return False
        records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError, RecursionError):
        return False
    is_its_own = bool(records) and isinstance(records[0], dict) and records[0].get("sessionId") == conversation
    return is_its_own and not any(_says_something(record) for record in records)


def _says_something(record: Any) -> bool:
    """Whether *record* is, or holds, a message that gemini did not put there itself."""
    if not isinstance(record, dict) or "type" in record:
        return True
    changes = record.get("$set", {})
    messages = [*_list(record.get("messages")), *_list(changes.get("messages") if isinstance(changes, dict) else 0)]
    return not isinstance(changes, dict) or not all(_is_context(message) for message in messages)


def _list(messages: object) -> list[Any]:
    """*messages*; what is neither a list nor missing counts as one that nobody knows."""
    return messages if isinstance(messages, list) else [] if messages is None else [messages]


def _is_context(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) and message.get("type") == "user" else None
    parts = content if isinstance(content, list) else [{"text": content}]
    return all(isinstance(part, dict) and str(part.get("text", "")).startswith(CONTEXT) for part in parts)
