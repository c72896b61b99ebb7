"""Claude Code's transcripts, `projects/<folder>/<id>.jsonl` in its config folder; read only (claude 2.1.330)."""

from collections.abc import Iterator
from pathlib import Path

from kasmon.backends.claude import history, tool_text
from kasmon.backends.common.json_access import Table, as_json, rows, table, text
from kasmon.backends.common.transcripts import NO_PROMPT, parse_time
from kasmon.model.events import (
    MessageWritten,
    NoticeRaised,
    TerminalEntry,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.supervisor.recovery.conversation import StoredConversation, build_conversation, read_all, read_objects

INTERRUPTED = "[Request interrupted"
"""The prefix of the entry by which a transcript records that the user interrupted the turn."""


def conversations(config: Path, name: str = "*") -> Iterator[StoredConversation]:
    """Yield the conversations in *config*, its folder; unreadable ones are omitted. *name*: a pattern of their ids."""
    return read_all(config.glob(f"projects/*/{name}.jsonl"), conversation)


def conversation(file: Path) -> StoredConversation | None:
    """Return the conversation in *file*; None if it contains no prompt. Raises `OSError` if it cannot be read."""
    prompts = list(dict.fromkeys(history.prompts(file)))
    if not prompts:
        return None
    directory = last_text = ""

    def is_relevant(line: bytes) -> bool:
        return b'"type":"assistant"' in line or (not directory and b'"cwd"' in line)

    for entry in read_objects(file, is_relevant):
        directory = directory or text(entry, "cwd")
        if entry.get("type") == "assistant" and not entry.get("isSidechain"):
            texts = (text(part, "text") for part in rows(table(entry, "message"), "content"))
            last_text = "\n".join(each for each in texts if each) or last_text
    return build_conversation(file.stem, directory, prompts, last_text, file.stat().st_mtime)


def entries(file: Path, after: float) -> Iterator[TerminalEntry]:
    """Yield the entries of the conversation in *file* later than *after*, in seconds since the epoch. Raises `OSError`.

    Sub-agents, and user entries that are not prompts of the user, are left out.
    """
    for entry in read_objects(file, lambda line: b'"type":"assistant"' in line or b'"type":"user"' in line):
        at = parse_time(text(entry, "timestamp"))
        if at <= after or any(entry.get(mark) for mark in ("isSidechain", "isMeta", "isCompactSummary")):
            continue
        message = table(entry, "message")
        if entry.get("type") == "user" and (prompt_text := text(message, "content")):
            yield from _prompt(prompt_text, at)
        elif entry.get("type") == "user":
            for part in rows(message, "content"):
                yield from _parse_user_part(part, at)
        elif entry.get("type") == "assistant":
            for part in rows(message, "content"):
                yield from _parse_assistant_part(part, at)


def _prompt(prompt: str, at: float) -> Iterator[TerminalEntry]:
    if prompt.lstrip().startswith(INTERRUPTED):
        yield NoticeRaised(at=at, text="interrupted")
    elif prompt.strip() and not prompt.lstrip().startswith(NO_PROMPT):
        yield TurnStarted(at=at, prompt=prompt)


def _parse_user_part(part: Table, at: float) -> Iterator[TerminalEntry]:
    if part.get("type") == "tool_result":
        is_ok = part.get("is_error") is not True
        yield ToolFinished(at=at, call=text(part, "tool_use_id"), ok=is_ok, output=tool_text.output(part))
    elif part.get("type") == "text":
        yield from _prompt(text(part, "text"), at)


def _parse_assistant_part(part: Table, at: float) -> Iterator[TerminalEntry]:
    match part.get("type"):
        case "text" if text(part, "text").strip():
            yield MessageWritten(at=at, text=text(part, "text"))
        case "thinking" if text(part, "thinking").strip():
            yield ThoughtWritten(at=at, text=text(part, "thinking"))
        case "tool_use":
            args, name = table(part, "input"), text(part, "name")
            yield ToolStarted(at=at, call=text(part, "id"), tool=name, title=tool_text.title(args), input=as_json(args))
