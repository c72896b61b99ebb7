"""The content of a tool call as text and as diffs. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

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

from kasmon.backends.common.diff import NOWHERE, compare, render, shorten_path, split_lines
from kasmon.backends.common.json_access import as_json, at, text


def unified(path: str, old: str | None, new: str | None) -> str:
    """Return the diff from *old* to *new*; None is a missing file. Empty if nothing changes."""
    hunks = compare(split_lines(old or ""), split_lines(new or ""))
    if not hunks and old is not None and new is not None:
        return ""
    return render(NOWHERE if old is None else f"a/{path}", NOWHERE if new is None else f"b/{path}", hunks)


ContentBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


def text_of(block: ContentBlock) -> str:
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
    diff = ""
    for edit in edited:
        kind = (edit.field_meta or {}).get("kind")  # as gemini states it; other agents only omit `oldText`
        old, new = None if kind == "add" else edit.old_text, None if kind == "delete" else edit.new_text
        diff += unified(shorten_path(edit.path, workdir), old, new)
    return diff


def output_of(raw: Any) -> str:
    if raw is None or isinstance(raw, str):
        return raw or ""
    named = (at(raw, name) for name in ("output", "error", "message"))
    return next((each for each in named if isinstance(each, str)), None) or as_json(raw, 2)


def patch_of(raw: Any) -> str:
    """Return the unified diff in a tool's raw output, if the agent includes one (opencode: `metadata.diff`)."""
    patch = text(raw, "metadata", "diff")
    return patch if "\n@@" in patch else ""
