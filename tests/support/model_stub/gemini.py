"""Gemini's generateContent and streamGenerateContent."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.support.model_stub.model_request import Asked, Tool
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

API = "gemini"
SIGNATURE = "c3R1Yg=="
USAGE = {
    "promptTokenCount": INPUT_TOKENS,
    "cachedContentTokenCount": CACHED_TOKENS,
    "candidatesTokenCount": OUTPUT_TOKENS,
    "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def read(body: dict[str, Any], model: str, *, streams: bool) -> Asked:
    """What *body* asks for; its model and whether it streams stand in the path."""
    declared = [function for tool in body.get("tools") or () for function in tool.get("functionDeclarations") or ()]
    return Asked(
        api=API,
        model=model,
        streams=streams,
        tools={function["name"]: Tool() for function in declared},
        talk=tuple(part for turn in body.get("contents") or () for part in _said(turn)),
        schema=_schema(body.get("generationConfig") or {}),
    )


def _schema(wanted: dict[str, Any]) -> dict[str, Any] | None:
    schema: dict[str, Any] = wanted.get("responseJsonSchema") or wanted.get("responseSchema") or {}
    return schema if schema or wanted.get("responseMimeType") == "application/json" else None


def _said(turn: dict[str, Any]) -> list[Message]:
    speaker = By.USER if turn.get("role", "user") == "user" else By.MODEL
    parts = []
    for part in turn.get("parts") or ():
        if "functionCall" in part:
            parts.append(Message(By.CALL, part["functionCall"]["name"]))
        elif "functionResponse" in part:
            parts.append(Message(By.RESULT, json.dumps(part["functionResponse"].get("response"))))
        elif part.get("text"):
            parts.append(Message(speaker, part["text"]))
    return parts


async def stream(asked: Asked, pieces: Sequence[Piece], gap_s: float) -> AsyncIterator[bytes]:
    head = _head(asked)
    async for piece in played(pieces):
        if isinstance(piece, Call) or piece.is_thinking:  # a thought begins with its title: it comes whole
            yield event({**head, "candidates": [_candidate(_part(piece))]})
            continue
        async for word in words(piece, gap_s):
            yield event({**head, "candidates": [_candidate({"text": word})]})
    yield event({**head, "candidates": [{**_candidate({"text": ""}), "finishReason": "STOP"}]})


def whole(asked: Asked, pieces: Sequence[Spoken]) -> dict[str, Any]:
    return {**_head(asked), "candidates": [{**_candidate(*map(_part, pieces)), "finishReason": "STOP"}]}


def error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "UNAVAILABLE")}}


def _part(piece: Spoken) -> dict[str, Any]:
    match piece:
        case Call(name, arguments):
            return {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": SIGNATURE}
        case Text(is_thinking=True):
            return {"text": f"**Thinking** {piece.whole}", "thought": True}
        case Text():
            return {"text": piece.whole}


def _candidate(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"role": "model", "parts": list(parts)}, "index": 0}


def _head(asked: Asked) -> dict[str, Any]:
    return {"responseId": new_id("gemini"), "modelVersion": asked.model, "usageMetadata": USAGE}
