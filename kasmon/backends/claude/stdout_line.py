"""One line of the agent's stdout: a protocol message, or other text."""

import json
from typing import NamedTuple

from kasmon.backends.common.json_access import Table
from kasmon.backends.common.unknown_messages import RAW_CHARACTERS


class UnparsedLine(NamedTuple):
    """A line that is not a message: no JSON, incomplete, or too long to be read whole."""

    raw: str
    """Its beginning."""


def read(line: bytes) -> Table | UnparsedLine | None:
    """Return the message in *line*; None if it is blank. Never raises."""
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        return message
    return UnparsedLine(line[: 4 * RAW_CHARACTERS].decode("utf-8", "replace")[:RAW_CHARACTERS])
