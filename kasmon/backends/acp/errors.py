"""An agent's JSON-RPC errors in words, and what they mean: a missing log-in, a limit, or just an error. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from acp import RequestError

from kasmon.sanitize import redact

AUTH_REQUIRED: Final = -32000
TOO_MANY_REQUESTS: Final = 429
LONGEST: Final = 2000
DEPTH: Final = 4


def words(error: RequestError, secrets: Sequence[str]) -> str:
    """What *error* says to a person, cleaned, without *secrets*."""
    said = _inner(str(error))
    more = _detail(error.data)
    text = f"{said}: {more}" if more and more not in said else said
    return cleaned(text, secrets) or "no reason given"


def cleaned(text: str, secrets: Sequence[str]) -> str:
    """The beginning of *text*, without *secrets*."""
    return redact(text[:LONGEST].strip(), secrets)[0]


def needs_log_in(error: RequestError) -> bool:
    """Whether the agent wants somebody to log in first."""
    return error.code == AUTH_REQUIRED


def is_limit(error: RequestError) -> bool:
    """Whether the agent's provider takes no more for now."""
    data = error.data if isinstance(error.data, Mapping) else {}
    return TOO_MANY_REQUESTS in (error.code, data.get("status"), data.get("statusCode"), data.get("code"))


def _inner(text: str) -> str:
    """The message in a *text* that is itself an error as JSON, as gemini passes its provider's on."""
    for _ in range(DEPTH):
        if not text.lstrip().startswith("{"):
            break
        try:
            inner: Any = json.loads(text)
        except (ValueError, RecursionError):
            break
        error = inner.get("error", inner)
        message = error.get("message") if isinstance(error, dict) else error
        if not isinstance(message, str):
            break
        text = message
    return text


def _detail(data: Any) -> str:
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping):
        for name in ("details", "message", "error", "reason"):
            if isinstance(data.get(name), str):
                return str(data[name])
    return ""
