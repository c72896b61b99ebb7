"""One line of the agent's stdout: a message, or what is none."""

import json
from typing import Final, NamedTuple

from kasmon.backends.common.json_access import Table

RAW_CHARACTERS: Final = 4000
"""How much of something unknown is kept."""


class UnparsedLine(NamedTuple):
    """A line that is no message: no JSON, half of it, or too long to be read whole."""

    raw: str
    """Its beginning."""


def read(line: bytes) -> Table | UnparsedLine | None:
    """What *line* says; None where it is blank. Never raises."""
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        return message
    return UnparsedLine(line[: 4 * RAW_CHARACTERS].decode("utf-8", "replace")[:RAW_CHARACTERS])
