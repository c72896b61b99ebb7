"""Convert an agent's JSON-RPC errors to text, and classify them: missing log-in, limit, or other error. Pure."""

from collections.abc import Sequence
from typing import Final

from acp import RequestError

from kasmon.backends.common.json_access import at, unwrap_error
from kasmon.backends.common.json_access import text as text_at
from kasmon.sanitize import redact

AUTH_REQUIRED: Final = -32000
TOO_MANY_REQUESTS: Final = 429
LONGEST: Final = 2000


def words(error: RequestError, secrets: Sequence[str]) -> str:
    """Return the text of *error* for the user, cleaned, without *secrets*."""
    message, data = unwrap_error(str(error)), error.data
    fields = (text_at(data, name) for name in ("details", "message", "error", "reason"))
    more = data if isinstance(data, str) else next(filter(None, fields), "")
    text = f"{message}: {more}" if more and more not in message else message
    return cleaned(text, secrets) or "no reason given"


def cleaned(text: str, secrets: Sequence[str]) -> str:
    """Return the beginning of *text*, without *secrets*."""
    return redact(text[:LONGEST].strip(), secrets)[0]


def needs_log_in(error: RequestError) -> bool:
    return error.code == AUTH_REQUIRED


def is_limit(error: RequestError) -> bool:
    """Whether the agent's provider has reached a limit."""
    return TOO_MANY_REQUESTS in (error.code, *(at(error.data, name) for name in ("status", "statusCode", "code")))
