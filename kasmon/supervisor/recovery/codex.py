"""Codex's rollouts, `sessions/Y/M/D/rollout-<time>-<id>.jsonl` in its folder; read only (codex 0.169)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kasmon.backends.shape import rows, table, text
from kasmon.backends.tmux.rollout import named
from kasmon.supervisor.recovery.kept import Kept, kept, objects, readable

MARKS = (b'"session_meta"', b'"UserMessage"', b'"user_message"', b'"task_complete"')
"""What is in the lines that are read; the others can be long."""


def conversations(folder: Path) -> Iterator[Kept]:
    """Those of codex's *folder*; what cannot be read is not there."""
    return readable(folder.glob("sessions/*/*/*/rollout-*.jsonl"), conversation)


def conversation(file: Path) -> Kept | None:
    """The one in *file*; None where that is no rollout, or nobody said anything.

    Raises:
        OSError: if it cannot be read.
    """
    match = named(str(file))
    if match is None:
        return None
    directory = said = ""
    prompts: list[str] = []
    for entry in objects(file, lambda line: any(mark in line for mark in MARKS)):
        payload = table(entry, "payload")
        directory = directory or (text(payload, "cwd") if entry.get("type") == "session_meta" else "")
        if prompt := _prompt(payload):
            prompts.append(prompt)
        if payload.get("type") == "task_complete":
            said = text(payload, "last_agent_message") or said
    return kept(match[1], directory, prompts, said, file.stat().st_mtime) if prompts else None


def _prompt(payload: dict[str, Any]) -> str:
    """What a person said by this event; empty where it is another one."""
    if payload.get("type") == "user_message":  # as older ones wrote it
        return text(payload, "message")
    item = table(payload, "item")
    if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return ""
    return "\n".join(text(part, "text") for part in rows(item, "content") if text(part, "text"))
