"""Convert events of a session to updates of the Agent Client Protocol, in the protocol's own JSON. Pure."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from kasmon.model.events import (
    EntryImported,
    Event,
    LimitReached,
    MessageWritten,
    NoticeRaised,
    PlanUpdated,
    SessionEnded,
    ThoughtWritten,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    UsageReported,
)
from kasmon.model.permission import Request
from kasmon.model.transcript.export import fenced
from kasmon.sanitize import clean_block, clean_line

EditorUpdate: TypeAlias = dict[str, Any]
OUTPUT_CHARACTERS: Final = 20_000
"""The longest output of one tool call that is sent; its beginning and its end."""
NOWHERE: Final = "/dev/null"
STATES: Final = {"open": "pending", "doing": "in_progress", "done": "completed"}
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read", "edit", "delete", "move", "search", "execute", "think", "fetch"), ""),
    **dict.fromkeys(("bash", "shell", "exec", "command", "run", "run_shell_command", "local_shell"), "execute"),
    **dict.fromkeys(("write", "multiedit", "notebookedit", "apply_patch", "patch", "write_file", "replace"), "edit"),
    **dict.fromkeys(("grep", "glob", "ls", "list", "websearch", "web_search"), "search"),
    **dict.fromkeys(("webfetch", "web_fetch"), "fetch"),
    **dict.fromkeys(("notebookread", "read_file"), "read"),
    **dict.fromkeys(("exitplanmode", "switch_mode"), "switch_mode"),
}
"""The protocol's kind of each known tool, by its name in small letters; empty if that is the kind's own name."""


class UpdateTranslator:
    """Converts one session's events, in order."""

    def __init__(self, workdir: str) -> None:
        """*workdir*: the session's folder; the paths of changed files are relative to it."""
        self._workdir = workdir
        self._calls: dict[str, tuple[str, str]] = {}
        """The calls that run: each with its tool and its input."""
        self._allowed: list[tuple[str, str]] = []
        """Tool and shown id of requests that were allowed, and whose call has not begun."""
        self._shown_ids: dict[str, str] = {}
        """Call -> the id under which the editor knows it: that of its request, if this came first."""

    def translate(self, event: Event) -> list[EditorUpdate]:
        """Return the updates for *event*; none for what an editor does not show."""
        match event:
            case TurnStarted() if event.prompt:
                return [text_chunk("user_message_chunk", event.prompt)]
            case MessageWritten() if event.within:
                content = {"type": "content", "content": _text(event.text)}
                return [_call_update(self._shown_ids.get(event.within, event.within), content=[content])]
            case MessageWritten():
                return [text_chunk("agent_message_chunk", event.text)]
            case ThoughtWritten() if not event.within:
                return [text_chunk("agent_thought_chunk", event.text)]
            case ToolStarted():
                return [self._start(event)]
            case ToolFinished():
                return [self._finish(event)]
            case PlanUpdated():
                entries = [
                    {"content": clean_line(item.text), "priority": "medium", "status": STATES[item.state]}
                    for item in event.items
                ]
                return [{"sessionUpdate": "plan", "entries": entries}]
            case UsageReported() if event.limit or event.cost_usd is not None:
                cost = {} if event.cost_usd is None else {"cost": {"amount": event.cost_usd, "currency": "USD"}}
                return [{"sessionUpdate": "usage_update", "used": event.context, "size": event.limit, **cost}]
            case NoticeRaised() if event.level != "info":
                return [notice(event.text)]
            case LimitReached():
                return [notice(event.text or "The agent waits for a usage limit.")]
            case SessionEnded():
                return [notice(f"The agent has ended: {event.why or event.signal or f'exit code {event.exit_code}'}")]
            case EntryImported():
                return self.translate(event.entry)
            case _:
                return []

    def open_request(self, request: Request) -> tuple[str, EditorUpdate | None]:
        """Return the id of the tool call that *request* is about, and the update that begins one, if none runs."""
        for call, (tool, given) in reversed(self._calls.items()):
            if tool == request.tool and _parse(given) == request.input:
                return self._shown_ids.get(call, call), None
        call = f"request-{request.id}"
        title = clean_line(request.title or request.shown) or request.kind
        return call, {"sessionUpdate": "tool_call", "status": "pending", **self._describe(call, request.tool, title)}

    def close_request(self, request: Request, call: str, *, allowed: bool) -> list[EditorUpdate]:
        """Return the updates after *request*, shown as the tool call *call*, was answered or withdrawn."""
        if call != f"request-{request.id}":
            return []
        if allowed and request.tool:
            self._allowed.append((request.tool, call))
            return [_call_update(call, status="in_progress")]
        return [_call_update(call, status="completed" if allowed else "failed")]

    def _start(self, event: ToolStarted) -> EditorUpdate:
        self._calls[event.call] = event.tool, event.input
        title = clean_line(event.title or event.tool)
        raw = _parse(event.input)
        given = {} if raw is None else {"rawInput": raw}
        for allowed in self._allowed:
            if allowed[0] == event.tool:
                self._allowed.remove(allowed)
                self._shown_ids[event.call] = allowed[1]
                return _call_update(allowed[1], status="in_progress", title=title, **given)
        described = self._describe(event.call, event.tool, title)
        return {"sessionUpdate": "tool_call", "status": "in_progress", **described, **given}

    def _finish(self, event: ToolFinished) -> EditorUpdate:
        self._calls.pop(event.call, None)
        call = self._shown_ids.pop(event.call, event.call)
        content = diff_contents(event.diff, self._workdir)
        if event.output:
            content.append({"type": "content", "content": _text(fenced(shorten(event.output), ""))})
        return _call_update(call, status="completed" if event.ok else "failed", content=content)

    def _describe(self, call: str, tool: str, title: str) -> dict[str, Any]:
        name, key = clean_line(tool), tool.casefold()
        shown = title if not name or title == name else f"{name}: {title}"
        return {"toolCallId": call, "title": shown, "kind": KINDS.get(key, "other") or key}


def text_chunk(kind: str, text: str) -> EditorUpdate:
    """Return an update that adds *text* to a message; *kind*: `agent_message_chunk` or another one of the protocol."""
    return {"sessionUpdate": kind, "content": _text(clean_block(text))}


def notice(text: str) -> EditorUpdate:
    """Return kasmon's own remark for the person, as a message that says so."""
    return text_chunk("agent_message_chunk", f"\n\n> kasmon: {clean_line(text)}\n\n")


def shorten(text: str, most: int = OUTPUT_CHARACTERS) -> str:
    """Return *text*, or its beginning and its end, with how much is left out."""
    half = most // 2
    if len(text) <= most:
        return text
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def diff_contents(diff: str, workdir: str) -> list[dict[str, Any]]:
    """Return the unified *diff* as contents of a tool call: one for each hunk, with absolute paths."""
    contents: list[dict[str, Any]] = []
    old_path = new_path = ""
    old: list[str] = []
    new: list[str] = []

    def end_hunk() -> None:
        if old or new:
            path = new_path if new_path != NOWHERE else old_path
            before = {} if old_path == NOWHERE else {"oldText": "".join(old)}
            contents.append({"type": "diff", "path": str(PurePath(workdir, path)), "newText": "".join(new), **before})
        old.clear()
        new.clear()

    lines = diff.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("--- ") and lines[number + 1 : number + 2] and lines[number + 1].startswith("+++ "):
            end_hunk()
            old_path = _path(line, "a/")
        elif line.startswith("+++ ") and number and lines[number - 1].startswith("--- "):
            new_path = _path(line, "b/")
        elif line.startswith("@@"):
            end_hunk()
        elif new_path and line[:1] in ("-", " "):
            old.append(line[1:])
        if new_path and line[:1] in ("+", " ") and not line.startswith("+++ "):
            new.append(line[1:])
    end_hunk()
    return contents


def _path(line: str, prefix: str) -> str:
    return line[4:].split("\t")[0].strip().removeprefix(prefix)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _call_update(call: str, **fields: Any) -> EditorUpdate:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}


def _parse(given: str) -> Any:
    try:
        return json.loads(given) if given else None
    except ValueError:
        return None
