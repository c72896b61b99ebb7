"""Looking into messages whose shape nobody promised: what is missing, or of another type, comes as empty."""

from typing import Any, TypeAlias

Table: TypeAlias = dict[str, Any]
"""A message of a protocol, or an object within one."""


def text(value: object, *path: str) -> str:
    """The text at *path* in *value*; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def table(value: object, *path: str) -> Table:
    """The object at *path*; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def rows(value: object, *path: str) -> list[Table]:
    """The objects in the array at *path*; empty where there is none, without what is no object."""
    found = at(value, *path)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def texts(value: object, *path: str) -> list[str]:
    """The texts in the array at *path*, likewise."""
    found = at(value, *path)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def amount(value: object, *path: str) -> float | None:
    """The number at *path*; None where there is none."""
    found = at(value, *path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def number(value: object, *path: str) -> int | None:
    """The whole number at *path*; None where there is none."""
    found = at(value, *path)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def count(value: object, *path: str) -> int:
    """The whole number at *path*; 0 where there is none."""
    return number(value, *path) or 0


def at(value: object, *path: str) -> Any:
    """Whatever stands at *path*; None where nothing does."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
