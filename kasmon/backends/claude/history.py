"""What the agent remembers on disk: its transcripts, by which a conversation is known to be the one of before.

`projects/<folder>/<id>.jsonl` holds a conversation, a line for each thing that happened; `sessions/<pid>.json` says
which one a running process has. Neither format is promised, so what cannot be read counts as not there.
"""

import contextlib
import json
from collections.abc import Iterator
from enum import Enum
from glob import escape
from pathlib import Path
from typing import Final

from kasmon.backends.claude.usage import of_models
from kasmon.backends.common.json_access import Table, amount, rows, table, text
from kasmon.model.commands import ConversationUsage

MARKS: Final = (b'"enqueue"', b'"type":"user"')
"""What is in the lines that may hold a prompt; the others can be long, and are not read."""
FIGURES: Final = b'"type":"cost-state"'
"""What is in the line that a process writes when it ends cleanly: the next one counts on from there."""
NO_PROMPT: Final = ("<command-", "<local-command-", "<system-reminder>", "<task-notification>", "[Request interrupted")
"""How texts begin that stand in the user's name, and are nobody's prompt."""


class PromptPresence(Enum):
    """Whether a conversation holds the prompt that was given last."""

    ENDS_WITH_IT = "its transcript ends with the last prompt"
    HOLDS_IT = "its transcript contains the last prompt and later messages"
    WITHOUT_IT = "its transcript does not contain the last prompt"
    NO_TRANSCRIPT = "it has no transcript"


def transcript(config: Path, conversation: str) -> Path | None:
    """The file that holds *conversation*; None where there is none."""
    if not conversation or "/" in conversation:
        return None
    try:
        found = sorted(config.glob(f"projects/*/{escape(conversation)}.jsonl"))
        return next((file for file in found if file.is_file()), None)
    except OSError:
        return None


def memory(config: Path, conversation: str, prompt: str) -> PromptPresence:
    """What the agent's own history says of *conversation*, in which *prompt* was given last."""
    file = transcript(config, conversation)
    if file is None:
        return PromptPresence.NO_TRANSCRIPT
    last, is_there = "", False
    try:
        for said in prompts(file):
            last = said
            is_there = is_there or said.strip() == prompt.strip()
    except OSError:
        return PromptPresence.NO_TRANSCRIPT
    if last.strip() == prompt.strip():
        return PromptPresence.ENDS_WITH_IT
    return PromptPresence.HOLDS_IT if is_there else PromptPresence.WITHOUT_IT


def carried(config: Path, conversation: str) -> ConversationUsage:
    """The figures that the agent itself goes on from when it goes on with *conversation*; none where it kept none."""
    file = transcript(config, conversation)
    kept: Table = {}
    if file is not None:
        with contextlib.suppress(OSError), file.open("rb") as lines:
            for line in lines:
                if FIGURES in line and (entry := _object(line)).get("sessionId") == conversation:
                    kept = entry
    return of_models(table(kept, "modelUsage"), amount(kept, "totalCostUSD"))


def prompts(file: Path) -> Iterator[str]:
    """The prompts in a transcript, oldest first; one that waited may come twice.

    Raises:
        OSError: if it cannot be read.
    """
    with file.open("rb") as lines:
        for line in lines:
            if any(mark in line for mark in MARKS) and (prompt := _prompt(line)):
                yield prompt


def conversation_of(config: Path, pid: int) -> str:
    """The id of the conversation that process *pid* has; empty where that is not known."""
    try:
        return text(_object((config / "sessions" / f"{pid}.json").read_bytes()), "sessionId")
    except OSError:
        return ""


def _prompt(line: bytes) -> str:
    entry = _object(line)
    if entry.get("type") == "queue-operation":
        return text(entry, "content") if entry.get("operation") == "enqueue" else ""
    is_own = entry.get("isMeta") or entry.get("isSidechain") or entry.get("isCompactSummary")
    if entry.get("type") != "user" or is_own:
        return ""
    message = table(entry, "message")
    said = text(message, "content") or "\n".join(
        text(part, "text") for part in rows(message, "content") if part.get("type") == "text"
    )
    return "" if said.lstrip().startswith(NO_PROMPT) else said


def _object(line: bytes) -> Table:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
