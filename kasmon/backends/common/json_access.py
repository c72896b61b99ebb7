"""Access to messages of unverified shape: a value that is missing or of another type is returned as empty."""

import json
from typing import Any, TypeAlias

Table: TypeAlias = dict[str, Any]
"""A message of a protocol, or an object within one."""


def text(value: object, *path: str) -> str:
    """Return the text at *path* in *value*; empty if there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def table(value: object, *path: str) -> Table:
    """Return the object at *path*; empty if there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def rows(value: object, *path: str) -> list[Table]:
    """Return the objects in the array at *path*; other elements are left out."""
    found = at(value, *path)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def texts(value: object, *path: str) -> list[str]:
    """Return the texts in the array at *path*; other elements are left out."""
    found = at(value, *path)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def amount(value: object, *path: str) -> float | None:
    """Return the number at *path*; None if there is none."""
    found = at(value, *path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def number(value: object, *path: str) -> int | None:
    """Return the whole number at *path*; None if there is none."""
    found = at(value, *path)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def count(value: object, *path: str) -> int:
    """Return the whole number at *path*; 0 if there is none."""
    return number(value, *path) or 0


def at(value: object, *path: str) -> Any:
    """Return the value at *path*; None if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def unwrap_error(message: str) -> str:
    """Return the inner message if *message* is itself a JSON error, as an agent passes on those of its provider."""
    for _ in range(4):
        if not message.lstrip().startswith("{"):
            break
        try:
            inner: Any = json.loads(message)
        except (ValueError, RecursionError):
            break
        message = text(inner, "error", "message") or text(inner, "error") or text(inner, "message") or message
    return message


def as_json(value: object, indent: int | None = None) -> str:
    """Return *value* as JSON without ASCII escapes; in Python's notation if JSON cannot express it."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
