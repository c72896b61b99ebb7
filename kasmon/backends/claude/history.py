"""The agent's transcripts on disk, by which a resumed conversation is verified.

`projects/<folder>/<id>.jsonl` holds a conversation, a line for each message or event; `sessions/<pid>.json` names the
conversation of a running process. Neither format is documented, so what cannot be read counts as missing.
"""

import contextlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from kasmon.backends.claude.usage import of_models
from kasmon.backends.common.json_access import Table, amount, table, text
from kasmon.backends.common.transcripts import claude_prompt, claude_transcript, parse_object
from kasmon.errors import LaunchError
from kasmon.model.commands import ConversationFork, ConversationUsage

MARKS: Final = (b'"enqueue"', b'"type":"user"')
"""Markers of lines that may hold a prompt; other lines can be long, and are not parsed."""
FIGURES: Final = b'"type":"cost-state"'
"""Marker of the line that a process writes when it ends cleanly: the next process continues from its figures."""


class PromptPresence(Enum):
    """Whether a conversation contains the last prompt."""

    ENDS_WITH_IT = "its transcript ends with the last prompt"
    HOLDS_IT = "its transcript contains the last prompt and later messages"
    WITHOUT_IT = "its transcript does not contain the last prompt"
    NO_TRANSCRIPT = "it has no transcript"


def memory(config: Path, conversation: str, prompt: str) -> PromptPresence:
    """Return whether the transcript of *conversation* contains *prompt*, which was sent last."""
    file = claude_transcript(config, conversation)
    if file is None:
        return PromptPresence.NO_TRANSCRIPT
    last, is_there = "", False
    try:
        for entry in prompts(file):
            last = entry
            is_there = is_there or entry.strip() == prompt.strip()
    except OSError:
        return PromptPresence.NO_TRANSCRIPT
    if last.strip() == prompt.strip():
        return PromptPresence.ENDS_WITH_IT
    return PromptPresence.HOLDS_IT if is_there else PromptPresence.WITHOUT_IT


def read_usage(config: Path, conversation: str) -> ConversationUsage:
    """Return the usage figures that the agent continues from when it resumes *conversation*; zero if none stored."""
    file = claude_transcript(config, conversation)
    kept: Table = {}
    if file is not None:
        with contextlib.suppress(OSError), file.open("rb") as lines:
            for line in lines:
                if FIGURES in line and (entry := parse_object(line)).get("sessionId") == conversation:
                    kept = entry
    return of_models(table(kept, "modelUsage"), amount(kept, "totalCostUSD"))


def prompts(file: Path) -> Iterator[str]:
    """Yield the prompts in a transcript, oldest first; a queued one may come twice.

    Raises:
        OSError: if it cannot be read.
    """
    with file.open("rb") as lines:
        for line in lines:
            if any(mark in line for mark in MARKS) and (prompt := _prompt(line)):
                yield prompt


def find_fork_point(config: Path, fork: ConversationFork) -> str:
    """Return the id of the last message before the prompt of *fork*.

    Raises:
        LaunchError: if the conversation has no transcript, or no such prompt with messages before it.
    """
    file = claude_transcript(config, fork.conversation)
    found: list[str] = []
    if file is not None:
        with contextlib.suppress(OSError), file.open("rb") as lines:
            for line in lines:
                entry = parse_object(line) if MARKS[1] in line else {}
                if claude_prompt(entry).strip() == fork.prompt.strip() and text(entry, "parentUuid"):
                    found.append(text(entry, "parentUuid"))
    if len(found) <= fork.later:
        raise LaunchError(
            f"claude's transcript of {fork.conversation!r} has no such prompt.",
            hint="It may have been sent during another turn, or before a /clear.",
        )
    return found[-1 - fork.later]


def conversation_of(config: Path, pid: int) -> str:
    """Return the id of the conversation of process *pid*; empty if unknown."""
    try:
        return text(parse_object((config / "sessions" / f"{pid}.json").read_bytes()), "sessionId")
    except OSError:
        return ""


def _prompt(line: bytes) -> str:
    entry = parse_object(line)
    if entry.get("type") == "queue-operation":
        return text(entry, "content") if entry.get("operation") == "enqueue" else ""
    return claude_prompt(entry)
