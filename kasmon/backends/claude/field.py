"""Fields of messages that nobody has checked: what is missing, or of another kind, counts as empty."""

from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A message of the protocol, or an object within one."""


def text(of: Message, name: str) -> str:
    value = of.get(name)
    return value if isinstance(value, str) else ""


def amount(of: Message, name: str) -> float | None:
    """The number called *name*; None where there is none."""
    value = of.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def count(of: Message, name: str) -> int:
    return int(amount(of, name) or 0)


def inner(of: Message, name: str) -> Message:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def parts(of: Message, name: str) -> list[Message]:
    """The objects in the list called *name*; what else is in it is left out."""
    value = of.get(name)
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def words(of: Message, name: str) -> list[str]:
    """The strings in the list called *name*, likewise."""
    value = of.get(name)
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
