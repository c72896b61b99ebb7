"""OpenAI Responses, as codex asks for them."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from tests.support.model_stub.model_request import Asked, Tool, text_of
from tests.support.model_stub.piece import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REASONING_TOKENS,
    Call,
    Piece,
    Spoken,
    Text,
    event,
    new_id,
    played,
    words,
)
from tests.support.model_stub.script import By, Message

API = "responses"
CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUTS = frozenset(f"{kind}_output" for kind in CALLS)
SPEAKERS = {"assistant": By.MODEL, "user": By.USER}
USAGE = {
    "input_tokens": INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def read(body: dict[str, Any]) -> Asked:
    given = body.get("input") or ()
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    wanted = (body.get("text") or {}).get("format") or {}
    return Asked(
        api=API,
        model=body.get("model", ""),
        streams=bool(body.get("stream")),
        tools=dict(_tools(body, items)),
        talk=tuple(part for item in items for part in _said(item)),
        schema=wanted.get("schema", {}) if wanted.get("type") == "json_schema" else None,
    )


def _tools(body: dict[str, Any], items: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Tool]]:
    """The tools of *body*; newer models get theirs as an item of the input."""
    more = [tool for item in items if item.get("type") == "additional_tools" for tool in item.get("tools") or ()]
    for tool in [*(body.get("tools") or ()), *more]:
        kind = tool.get("type", "")
        if kind == "namespace":
            for inner in tool.get("tools") or ():
                yield inner.get("name", ""), Tool(inner.get("type") == "custom", tool.get("name", ""))
        else:
            yield tool.get("name") or kind, Tool(kind == "custom")


def _said(item: dict[str, Any]) -> list[Message]:
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") in SPEAKERS:
        return [Message(SPEAKERS[item["role"]], text_of(item.get("content")))]
    if kind in CALLS:
        return [Message(By.CALL, item.get("name", kind))]
    if kind in OUTPUTS:
        output = item.get("output")
        return [Message(By.RESULT, output if isinstance(output, str) else json.dumps(output))]
    return []


async def stream(asked: Asked, pieces: Sequence[Piece], gap_s: float) -> AsyncIterator[bytes]:
    head = _response(asked, "in_progress")
    yield _event("response.created", response=head)
    items: list[dict[str, Any]] = []
    async for piece in played(pieces):
        item, at = _item(piece, asked), len(items)
        where = {"output_index": at, "item_id": item["id"]}
        yield _event("response.output_item.added", output_index=at, item=_begun(item))
        if isinstance(piece, Text):
            name = "reasoning_summary_text" if piece.is_thinking else "output_text"
            part = {"summary_index": 0} if piece.is_thinking else {"content_index": 0}
            if piece.is_thinking:
                empty = {"type": "summary_text", "text": ""}
                yield _event("response.reasoning_summary_part.added", part=empty, **where, **part)
            async for word in words(piece, gap_s):
                yield _event(f"response.{name}.delta", delta=word, **where, **part)
        yield _event("response.output_item.done", output_index=at, item=item)
        items.append(item)
    yield _event("response.completed", response={**head, "status": "completed", "output": items, "usage": USAGE})


def whole(asked: Asked, pieces: Sequence[Spoken]) -> dict[str, Any]:
    items = [_item(piece, asked) for piece in pieces]
    return {**_response(asked, "completed"), "output": items, "usage": USAGE}


def error(status: int, message: str) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error" if status < 500 else "api_error", "code": None}
    }


def _item(piece: Spoken, asked: Asked) -> dict[str, Any]:
    match piece:
        case Call(name, arguments):
            tool = asked.tools.get(name, Tool())
            if name.startswith("mcp__") and name not in asked.tools:  # codex hides tools of servers behind a search
                server, _, name = name.rpartition("__")
                tool = Tool(namespace=server)
            where = {"namespace": tool.namespace} if tool.namespace else {}
            head = {"call_id": new_id("call"), "name": name, "status": "completed", **where}
            if isinstance(arguments, str):
                return {"type": "custom_tool_call", "id": new_id("ctc"), "input": arguments, **head}
            return {"type": "function_call", "id": new_id("fc"), "arguments": piece.json, **head}
        case Text(is_thinking=True):
            summary = [{"type": "summary_text", "text": piece.whole}]
            return {"type": "reasoning", "id": new_id("rs"), "summary": summary, "encrypted_content": None}
        case Text():
            content = [{"type": "output_text", "text": piece.whole, "annotations": []}]
            head = {"id": new_id("msg"), "role": "assistant", "status": "completed"}
            return {"type": "message", "content": content, **head}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] == "reasoning":
        return {**item, "summary": []}
    return {**item, "content": [], "status": "in_progress"} if item["type"] == "message" else item


def _response(asked: Asked, status: str) -> dict[str, Any]:
    head = {"id": new_id("resp"), "object": "response", "created_at": int(time.time()), "model": asked.model}
    return {**head, "status": status, "output": []}


def _event(kind: str, **more: Any) -> bytes:
    return event({"type": kind, **more}, kind)
