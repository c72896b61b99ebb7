"""Convert an agent's JSON-RPC errors to text, and classify them: missing log-in, limit, or other error. Pure."""

import json
from collections.abc import Sequence
from typing import Any, Final

from acp import RequestError

from kasmon.backends.common.json_access import at
from kasmon.backends.common.json_access import text as text_at
from kasmon.sanitize import redact

AUTH_REQUIRED: Final = -32000
TOO_MANY_REQUESTS: Final = 429
LONGEST: Final = 2000
DEPTH: Final = 4


def words(error: RequestError, secrets: Sequence[str]) -> str:
    """Return the text of *error* for the user, cleaned, without *secrets*."""
    said = _inner(str(error))
    more = _detail(error.data)
    text = f"{said}: {more}" if more and more not in said else said
    return cleaned(text, secrets) or "no reason given"


def cleaned(text: str, secrets: Sequence[str]) -> str:
    """Return the beginning of *text*, without *secrets*."""
    return redact(text[:LONGEST].strip(), secrets)[0]


def needs_log_in(error: RequestError) -> bool:
    return error.code == AUTH_REQUIRED


def is_limit(error: RequestError) -> bool:
    """Whether the agent's provider has reached a limit."""
    return TOO_MANY_REQUESTS in (error.code, *(at(error.data, name) for name in ("status", "statusCode", "code")))


def _inner(text: str) -> str:
    """Return the message in a *text* that is itself a JSON error, as gemini passes on those of its provider."""
    for _ in range(DEPTH):
        if not text.lstrip().startswith("{"):
            break
        try:
            inner: Any = json.loads(text)
        except (ValueError, RecursionError):
            break
        message = text_at(inner, "error", "message") or text_at(inner, "error") or text_at(inner, "message")
        if not message:
            break
        text = message
    return text


def _detail(data: Any) -> str:
    if isinstance(data, str):
        return data
    return next((said for name in ("details", "message", "error", "reason") if (said := text_at(data, name))), "")
