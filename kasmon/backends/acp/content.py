"""What a tool call shows, as text and as diffs. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
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

from kasmon.backends.acp.unified import unified

Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


def text_of(block: Block) -> str:
    """What *block* says, as Markdown."""
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
    """The text in *contents*."""
    return "\n".join(text_of(each.content) for each in contents if isinstance(each, ContentToolCallContent)).strip("\n")


def edits(contents: Iterable[Content]) -> list[FileEditToolCallContent]:
    """Those of *contents* that change a file."""
    return [each for each in contents if isinstance(each, FileEditToolCallContent)]


def diff_of(edited: Sequence[FileEditToolCallContent], workdir: str) -> str:
    """All of *edited* as one unified diff."""
    return "".join(unified(within(edit.path, workdir), _old(edit), _new(edit)) for edit in edited)


def within(path: str, workdir: str) -> str:
    """*path* as seen from *workdir*, where it lies in there."""
    whole = PurePath(path)
    return str(whole.relative_to(workdir)) if whole.is_absolute() and whole.is_relative_to(workdir) else path


def output_of(raw: Any) -> str:
    """What a tool gave, out of its raw output."""
    if raw is None or isinstance(raw, str):
        return raw or ""
    if isinstance(raw, Mapping):
        for name in ("output", "error", "message"):
            if isinstance(raw.get(name), str):
                return str(raw[name])
    return pretty(raw)


def patch_of(raw: Any) -> str:
    """The unified diff in a tool's raw output, where the agent keeps one (opencode: `metadata.diff`)."""
    data = raw.get("metadata") if isinstance(raw, Mapping) else None
    patch = data.get("diff") if isinstance(data, Mapping) else None
    return patch if isinstance(patch, str) and "\n@@" in patch else ""


def pretty(raw: Any) -> str:
    """*raw* as JSON for people."""
    try:
        return json.dumps(raw, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return repr(raw)


def _old(edit: FileEditToolCallContent) -> str | None:
    """What was there; None for a file that is made."""
    return None if _kind(edit) == "add" else edit.old_text


def _new(edit: FileEditToolCallContent) -> str | None:
    return None if _kind(edit) == "delete" else edit.new_text


def _kind(edit: FileEditToolCallContent) -> object:
    """What gemini says that the edit does; others say it by `oldText` alone."""
    return (edit.field_meta or {}).get("kind")
