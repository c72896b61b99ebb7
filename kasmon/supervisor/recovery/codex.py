"""Codex's rollouts, `sessions/Y/M/D/rollout-<time>-<id>.jsonl` in its folder; read only (codex 0.169)."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kasmon.backends.codex.items import script
from kasmon.backends.common.json_access import rows, table, text
from kasmon.backends.common.transcripts import codex_prompt, parse_time
from kasmon.backends.tmux.evidence.codex_rollout import match_path
from kasmon.model.events import (
    MessageWritten,
    NoticeRaised,
    TerminalEntry,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from kasmon.sanitize import clean_line
from kasmon.supervisor.recovery.conversation import StoredConversation, build_conversation, read_all, read_objects

MARKS = (b'"session_meta"', b'"UserMessage"', b'"user_message"', b'"task_complete"')
"""Substrings of the lines that are parsed; others can be long."""

ITEMS = (b'"item_completed"', b'"user_message"', b'"turn_aborted"')
"""Substrings of the lines that contain messages and actions."""
LONGEST_TITLE = 300
"""In characters."""


def conversations(folder: Path, name: str = "*") -> Iterator[StoredConversation]:
    """Yield the conversations in codex's *folder*; unreadable ones are omitted. *name*: a pattern of their ids."""
    return read_all(folder.glob(f"sessions/*/*/*/rollout-*-{name}.jsonl"), conversation)


def conversation(file: Path) -> StoredConversation | None:
    """Return the conversation in *file*; None if that is no rollout, or contains no prompt. Raises `OSError`."""
    match = match_path(str(file))
    if match is None:
        return None
    directory = last_text = ""
    prompts: list[str] = []
    for entry in read_objects(file, lambda line: any(mark in line for mark in MARKS)):
        payload = table(entry, "payload")
        directory = directory or (text(payload, "cwd") if entry.get("type") == "session_meta" else "")
        if prompt := codex_prompt(payload):
            prompts.append(prompt)
        if payload.get("type") == "task_complete":
            last_text = text(payload, "last_agent_message") or last_text
    return build_conversation(match[1], directory, prompts, last_text, file.stat().st_mtime) if prompts else None


def entries(file: Path, after: float) -> Iterator[TerminalEntry]:
    """Yield the entries of the conversation in *file* later than *after*, in seconds since the epoch."""
    for entry in read_objects(file, lambda line: any(mark in line for mark in ITEMS)):
        at, payload = parse_time(text(entry, "timestamp")), table(entry, "payload")
        if at <= after:
            continue
        if prompt := codex_prompt(payload):
            yield TurnStarted(at=at, prompt=prompt)
        elif payload.get("type") == "turn_aborted":
            yield NoticeRaised(at=at, text="interrupted")
        elif payload.get("type") == "item_completed":
            yield from _item(table(payload, "item"), at)


def _item(item: dict[str, Any], at: float) -> Iterator[TerminalEntry]:
    message = "\n".join(text(part, "text") for part in rows(item, "content") if text(part, "text"))
    match item.get("type"):
        case "AgentMessage" if message.strip():
            yield MessageWritten(at=at, text=message)
        case "Reasoning" if thought := "\n".join(_strings(item, "summary_text")):
            yield ThoughtWritten(at=at, text=thought)
        case "CommandExecution":
            command = script(shlex.join(_strings(item, "command")))
            yield from _call(item, "shell", command, text(item, "aggregated_output"), at)
        case "FileChange":
            changes = table(item, "changes")
            diffs = (text(table(changes, path), "unified_diff") for path in changes)
            yield from _call(item, "edit", ", ".join(changes), "", at, diff="\n".join(diff for diff in diffs if diff))
        case str() as kind if kind.endswith(("ToolCall", "Search")):
            yield from _call(item, kind, text(item, "tool") or text(item, "query"), "", at)


def _call(
    item: dict[str, Any], tool: str, title: str, output: str, at: float, diff: str = ""
) -> Iterator[TerminalEntry]:
    call, is_ok = text(item, "id"), item.get("status") in (None, "completed")
    yield ToolStarted(at=at, call=call, tool=tool, title=clean_line(title)[:LONGEST_TITLE], input=title)
    yield ToolFinished(at=at, call=call, ok=is_ok, output=output, diff=diff)


def _strings(item: dict[str, Any], key: str) -> list[str]:
    values = item.get(key)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
