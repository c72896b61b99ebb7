"""Codex's items as events: messages, thoughts and tool calls. One table has the names and titles of each type."""

import shlex
from collections.abc import Callable
from typing import Final

from kasmon.backends.codex import diff
from kasmon.backends.common.json_access import Table, as_json, at, rows, table, text, texts
from kasmon.model.events import Event, MessageWritten, NoticeRaised, ThoughtWritten, ToolFinished, ToolStarted

SHELL: Final = "shell"
PATCH: Final = "apply_patch"
PERSONS: Final = "userMessage"
SHELLS: Final = frozenset(f"{folder}{name}" for folder in ("", "/bin/", "/usr/bin/") for name in ("bash", "sh", "zsh"))
"""Programs that are known to run the text behind `-c`; another program of such a name may do anything."""
QUIET: Final = frozenset({PERSONS, "hookPrompt", "functionCallOutput", "subAgentActivity", "enteredReviewMode"})
"""Types without content of their own."""
TOOLS: Final[dict[str, Callable[[Table], tuple[str, str]]]] = {
    "commandExecution": lambda item: (SHELL, script(text(item, "command"))),
    "fileChange": lambda item: (PATCH, ", ".join(diff.paths(rows(item, "changes"), ""))),
    "mcpToolCall": lambda item: (f"{text(item, 'server')}.{text(item, 'tool')}", ""),
    "dynamicToolCall": lambda item: (text(item, "tool"), ""),
    "collabAgentToolCall": lambda item: (text(item, "tool"), text(item, "prompt")),
    "webSearch": lambda item: ("web_search", text(item, "query")),
    "imageView": lambda item: ("view_image", text(item, "path")),
    "imageGeneration": lambda item: ("image_generation", text(item, "revisedPrompt")),
    "sleep": lambda _item: ("sleep", ""),
}
"""Type -> the tool's name, and what it is used on."""
INPUT: Final = {
    "commandExecution": ("command", "cwd"),
    "fileChange": ("changes",),
    "collabAgentToolCall": ("prompt", "model", "receiverThreadIds"),
    "webSearch": ("query", "action"),
    "imageView": ("path",),
    "sleep": ("durationMs",),
}
"""Type -> which of its fields are the tool's input; for any other: `arguments`."""
UNDONE: Final = frozenset({"failed", "declined"})


def is_supported(kind: str) -> bool:
    """Whether the item type *kind* is handled or known to be without content."""
    return (
        kind in TOOLS
        or kind in QUIET
        or kind in ("agentMessage", "reasoning", "plan", "contextCompaction")
        or (kind == "exitedReviewMode")
    )


def started(item: Table, workdir: str, within: str, now: float) -> ToolStarted | None:
    """Return the tool call that *item* begins; None if it is no tool."""
    kind = text(item, "type")
    if kind not in TOOLS:
        return None
    tool, title = TOOLS[kind](item)
    if kind == "fileChange":
        title = ", ".join(diff.paths(rows(item, "changes"), workdir))
    return ToolStarted(
        at=now, call=text(item, "id"), tool=tool, title=_line(title), input=_input(item, kind), within=within
    )


def finished(item: Table, workdir: str, within: str, now: float) -> Event | None:
    """Return the event of a finished *item*; None if there is none."""
    kind = text(item, "type")
    if kind in TOOLS:
        changed = diff.unified(rows(item, "changes"), workdir) if kind == "fileChange" else ""
        has_failed = item.get("exitCode") not in (0, None) or item.get("success") is False
        ok = text(item, "status") not in UNDONE and not has_failed
        return ToolFinished(at=now, call=text(item, "id"), ok=ok, output=_output(item, kind), diff=changed)
    if kind in ("agentMessage", "plan", "exitedReviewMode"):
        message = text(item, "text") or text(item, "review")
        return MessageWritten(at=now, text=message, within=within) if message else None
    if kind == "reasoning":
        thought = "\n\n".join(texts(item, "summary") or texts(item, "content"))
        return ThoughtWritten(at=now, text=thought, within=within) if thought else None
    if kind == "contextCompaction":
        return NoticeRaised(at=now, text="Codex has summarised the conversation to make room for more.")
    return None


def words(item: Table) -> str:
    """Return the user's text in *item*; empty for any other item."""
    parts = rows(item, "content") if text(item, "type") == PERSONS else []
    return "\n".join(text(part, "text") for part in parts if at(part, "type") == "text")


def script(command: str) -> str:
    """Return the script that *command* runs: of `/bin/bash -lc 'touch a'` exactly `touch a`; otherwise *command*."""
    try:
        arguments = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(arguments) == 3 and arguments[0] in SHELLS and arguments[1] in ("-c", "-lc")
    return arguments[2] if is_shell else command


def _input(item: Table, kind: str) -> str:
    fields = INPUT.get(kind)
    if fields is None:
        return as_json(at(item, "arguments"))
    given = {field: item[field] for field in fields if item.get(field) is not None}
    if kind == "commandExecution":
        given["command"] = script(text(item, "command"))
    return as_json(given)


def _output(item: Table, kind: str) -> str:
    if kind == "commandExecution":
        output, code = text(item, "aggregatedOutput"), item.get("exitCode")
        return output or (f"exit code {code}" if code not in (0, None) else "")
    if kind == "mcpToolCall":
        return text(item, "error", "message") or _content(rows(item, "result", "content"))
    if kind == "dynamicToolCall":
        return _content(rows(item, "contentItems"))
    if kind == "collabAgentToolCall":
        states = table(item, "agentsStates")
        return "\n".join(
            f"{thread}: {text(state, 'status')} {text(state, 'message')}" for thread, state in states.items()
        )
    return ""


def _content(parts: list[Table]) -> str:
    return "\n".join(text(part, "text") or as_json(part) for part in parts)


def _line(title: str) -> str:
    lines = title.strip().splitlines()
    return lines[0] + (" …" if len(lines) > 1 else "") if lines else ""
