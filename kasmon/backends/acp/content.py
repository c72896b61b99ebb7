"""The content of a tool call as text and as diffs. Pure."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Final

from acp.schema import (
    AudioContentBlock,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    ResourceContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    TextResourceContents,
)

LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
COMPARED: Final = 4000
"""Up to how many lines, both texts together, are compared in full; else the differing range is one change."""
CONTEXT: Final = 3
NOWHERE: Final = "/dev/null"


def unified(path: str, old: str | None, new: str | None) -> str:
    """Return the diff from *old* to *new*; None is a missing file. Empty if nothing changes."""
    before, after = LINE.findall(old or ""), LINE.findall(new or "")
    heading = (NOWHERE if old is None else f"a/{path}", NOWHERE if new is None else f"b/{path}")
    if before == after:
        return "" if old is not None and new is not None else f"--- {heading[0]}\n+++ {heading[1]}\n"
    if len(before) + len(after) <= COMPARED:
        rows: Iterator[str] = difflib.unified_diff(before, after, *heading, n=CONTEXT)
    else:
        rows = _coarse(before, after, heading)
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _coarse(before: Sequence[str], after: Sequence[str], heading: tuple[str, str]) -> Iterator[str]:
    """Yield one hunk from the first differing line to the last."""
    head = sum(1 for _ in takewhile(bool, (one == other for one, other in zip(before, after, strict=False))))
    most = min(len(before), len(after)) - head
    tail = sum(1 for _ in takewhile(bool, (before[-1 - n] == after[-1 - n] for n in range(most))))
    start = max(0, head - CONTEXT)
    out, come = before[head : len(before) - tail], after[head : len(after) - tail]
    behind = before[len(before) - tail : len(before) - tail + CONTEXT]
    same = (head - start) + len(behind)
    yield f"--- {heading[0]}\n"
    yield f"+++ {heading[1]}\n"
    yield f"@@ -{_range(start, len(out) + same)} +{_range(start, len(come) + same)} @@\n"
    yield from (f" {line}" for line in before[start:head])
    yield from (f"-{line}" for line in out)
    yield from (f"+{line}" for line in come)
    yield from (f" {line}" for line in behind)


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


def text_of(block: Block) -> str:
    """Return *block* as Markdown."""
    match block:
        case TextContentBlock():
            return block.text
        case ImageContentBlock():
            return f"[image: {block.mime_type}]"
        case AudioContentBlock():
            return f"[audio: {block.mime_type}]"
        case ResourceContentBlock():
            return f"[{block.name}]({block.uri})"
        case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
            return resource.text
        case EmbeddedResourceContentBlock():
            return f"[file: {block.resource.uri}]"


def texts(contents: Iterable[Content]) -> str:
    return "\n".join(text_of(each.content) for each in contents if isinstance(each, ContentToolCallContent)).strip("\n")


def edits(contents: Iterable[Content]) -> list[FileEditToolCallContent]:
    """Return those of *contents* that change a file."""
    return [each for each in contents if isinstance(each, FileEditToolCallContent)]


def diff_of(edited: Sequence[FileEditToolCallContent], workdir: str) -> str:
    return "".join(unified(within(edit.path, workdir), _old(edit), _new(edit)) for edit in edited)


def within(path: str, workdir: str) -> str:
    """Return *path* relative to *workdir*, if it is inside."""
    whole = PurePath(path)
    return str(whole.relative_to(workdir)) if whole.is_absolute() and whole.is_relative_to(workdir) else path


def output_of(raw: Any) -> str:
    if raw is None or isinstance(raw, str):
        return raw or ""
    if isinstance(raw, Mapping):
        for name in ("output", "error", "message"):
            if isinstance(raw.get(name), str):
                return str(raw[name])
    return pretty(raw)


def patch_of(raw: Any) -> str:
    """Return the unified diff in a tool's raw output, if the agent includes one (opencode: `metadata.diff`)."""
    data = raw.get("metadata") if isinstance(raw, Mapping) else None
    patch = data.get("diff") if isinstance(data, Mapping) else None
    return patch if isinstance(patch, str) and "\n@@" in patch else ""


def pretty(raw: Any) -> str:
    """Return *raw* as readable JSON."""
    try:
        return json.dumps(raw, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return repr(raw)


def _old(edit: FileEditToolCallContent) -> str | None:
    """Return the old content; None for a new file."""
    return None if _kind(edit) == "add" else edit.old_text


def _new(edit: FileEditToolCallContent) -> str | None:
    return None if _kind(edit) == "delete" else edit.new_text


def _kind(edit: FileEditToolCallContent) -> object:
    """Return the edit's kind as gemini states it; other agents only omit `oldText`."""
    return (edit.field_meta or {}).get("kind")
