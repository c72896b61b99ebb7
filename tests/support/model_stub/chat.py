"""OpenAI Chat Completions, as opencode and most others ask for them."""

import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from tests.support.model_stub.model_request import Asked, Tool, text_of
from tests.support.model_stub.piece import (
    CACHED_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
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

API = "chat"
USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


def read(body: dict[str, Any]) -> Asked:
    wanted = body.get("response_format") or {}
    tools = [tool["function"] for tool in body.get("tools") or () if "function" in tool]
    messages: list[dict[str, Any]] = body.get("messages") or []
    talk = tuple(part for message in messages for part in _said(message))
    return Asked(
        api=API,
        model=body.get("model", ""),
        streams=bool(body.get("stream")),
        tools={tool.get("name", ""): Tool(schema=tool.get("parameters") or {}) for tool in tools},
        talk=talk,
        schema=_schema(wanted),
        edits_in_text=not tools and any(BLOCKS in text_of(message.get("content")) for message in messages),
        is_after_turn=bool(talk) and talk[-1].by is By.MODEL and messages[-1].get("role") == "user",
    )


REMINDER: Final = re.compile(
    r"\s*<(system-reminder|turn-context|current_datetime)>.*?</\1>\s*|\s*</?user_query>\s*", re.DOTALL
)
"""What clients put around a prompt: OpenCode and kimi a reminder, goose the folder, copilot the time, grok a tag."""
BLOCKS: Final = "SEARCH/REPLACE block"
"""How aider names its edits in its instructions."""


def _schema(wanted: dict[str, Any]) -> dict[str, Any] | None:
    schema: dict[str, Any] = (wanted.get("json_schema") or {}).get("schema") or {}
    return schema if str(wanted.get("type", "")).startswith("json") else None


def _said(message: dict[str, Any]) -> list[Message]:
    text = text_of(message.get("content"))
    match message.get("role"):
        case "user":
            own = REMINDER.sub("\n", text).strip()
            return [Message(By.USER, own)] if own or not text else []
        case "tool":
            return [Message(By.RESULT, text)]
        case "assistant":
            calls = [Message(By.CALL, call["function"]["name"]) for call in message.get("tool_calls") or ()]
            return [Message(By.MODEL, text)] * bool(text) + calls
    return []


async def stream(asked: Asked, pieces: Sequence[Piece], gap_s: float) -> AsyncIterator[bytes]:
    head = {**_head(asked), "object": "chat.completion.chunk"}
    yield _chunk(head, {"role": "assistant", "content": ""})
    calls = 0
    async for piece in played(pieces):
        if isinstance(piece, Call):
            yield _chunk(head, {"tool_calls": [{"index": calls, **_call(piece, arguments="")}]})
            yield _chunk(head, {"tool_calls": [{"index": calls, "function": {"arguments": piece.json}}]})
            calls += 1
            continue
        async for word in words(piece, gap_s):
            yield _chunk(head, {"reasoning_content" if piece.is_thinking else "content": word})
    yield _chunk(head, {}, "tool_calls" if calls else "stop", usage=USAGE)
    yield event("[DONE]")


def whole(asked: Asked, pieces: Sequence[Spoken]) -> dict[str, Any]:
    texts = [piece for piece in pieces if isinstance(piece, Text)]
    calls = [_call(piece, arguments=piece.json) for piece in pieces if isinstance(piece, Call)]
    message = {
        "role": "assistant",
        "content": "".join(text.whole for text in texts if not text.is_thinking),
        "reasoning_content": "".join(text.whole for text in texts if text.is_thinking),
        **({"tool_calls": calls} if calls else {}),
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {**_head(asked), "object": "chat.completion", "choices": [choice], "usage": USAGE}


def error(status: int, message: str) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error" if status < 500 else "api_error", "code": None}
    }


def _call(call: Call, arguments: str) -> dict[str, Any]:
    return {"id": new_id("call"), "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _head(asked: Asked) -> dict[str, Any]:
    return {"id": new_id("chatcmpl"), "created": int(time.time()), "model": asked.model}


def _chunk(head: dict[str, Any], delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})
