"""Anthropic Messages, as Claude asks for them."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

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

API = "anthropic"
SIGNATURE = "c3R1Yg=="
JSON_CHARACTERS = 40
"""How much of a call's arguments comes in one event."""
USAGE = {
    "input_tokens": INPUT_TOKENS - CACHED_TOKENS,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": CACHED_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
}
PLAN_FILE = re.compile(r"/[^\s\"\\]*/plans/[^\s\"\\]+\.md")
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: dict[str, Any]) -> Asked:
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format")
    return Asked(
        api=API,
        model=body.get("model", ""),
        streams=bool(body.get("stream")),
        tools={tool.get("name", ""): Tool() for tool in body.get("tools") or ()},
        talk=tuple(part for message in body.get("messages") or () for part in _said(message)),
        schema=None if wanted is None else wanted.get("schema", {}),
        plan_file=_plan_file(body),
    )


def _plan_file(body: dict[str, Any]) -> str:
    """In plan mode, Claude Code's instructions name a file for the plan."""
    found = PLAN_FILE.search(json.dumps(body.get("messages"), ensure_ascii=False))
    return found[0] if found else ""


def _said(message: dict[str, Any]) -> list[Message]:
    content = message.get("content") or ()
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if message.get("role") == "system":
        return []
    if message.get("role") == "assistant":
        calls = [Message(By.CALL, block["name"]) for block in blocks if block.get("type") == "tool_use"]
        return [Message(By.MODEL, text) for text in texts] + calls
    results = [block for block in blocks if block.get("type") == "tool_result"]
    own = [text for text in texts if not text.lstrip().startswith("<system-reminder>")]
    return [Message(By.RESULT, text_of(block.get("content"))) for block in results] + [
        Message(By.USER, text) for text in own
    ]


async def stream(asked: Asked, pieces: Sequence[Piece], gap_s: float) -> AsyncIterator[bytes]:
    yield _event("message_start", message={**_message(asked), "usage": {**USAGE, "output_tokens": 1}})
    index = 0
    async for piece in played(pieces):
        match piece:
            case Call(name):
                yield _start(index, type="tool_use", id=new_id("toolu"), name=name, input={})
                for at in range(0, len(piece.json), JSON_CHARACTERS):
                    yield _delta(index, type="input_json_delta", partial_json=piece.json[at : at + JSON_CHARACTERS])
            case Text(is_thinking=True):
                yield _start(index, type="thinking", thinking="", signature="")
                async for word in words(piece, gap_s):
                    yield _delta(index, type="thinking_delta", thinking=word)
                yield _delta(index, type="signature_delta", signature=SIGNATURE)
            case Text():
                yield _start(index, type="text", text="")
                async for word in words(piece, gap_s):
                    yield _delta(index, type="text_delta", text=word)
        yield _event("content_block_stop", index=index)
        index += 1
    yield _event("message_delta", delta={"stop_reason": _stop(pieces), "stop_sequence": None}, usage=USAGE)
    yield _event("message_stop")


def whole(asked: Asked, pieces: Sequence[Spoken]) -> dict[str, Any]:
    return {**_message(asked), "content": [_block(piece) for piece in pieces], "stop_reason": _stop(pieces)}


def error(status: int, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": ERRORS.get(status, "api_error"), "message": message}}


def _block(piece: Spoken) -> dict[str, Any]:
    match piece:
        case Call(name, arguments):
            return {"type": "tool_use", "id": new_id("toolu"), "name": name, "input": arguments}
        case Text(is_thinking=True):
            return {"type": "thinking", "thinking": piece.whole, "signature": SIGNATURE}
        case Text():
            return {"type": "text", "text": piece.whole}


def _message(asked: Asked) -> dict[str, Any]:
    head = {"id": new_id("msg"), "type": "message", "role": "assistant", "model": asked.model, "content": []}
    return {**head, "stop_reason": None, "stop_sequence": None, "usage": USAGE}


def _stop(pieces: Sequence[Piece]) -> str:
    return "tool_use" if any(isinstance(piece, Call) for piece in pieces) else "end_turn"


def _start(index: int, **block: Any) -> bytes:
    return _event("content_block_start", index=index, content_block=block)


def _delta(index: int, **delta: Any) -> bytes:
    return _event("content_block_delta", index=index, delta=delta)


def _event(kind: str, **more: Any) -> bytes:
    return event({"type": kind, **more}, kind)
