"""Whether a value of the code holds a credential, as far as one can look into it."""

from collections.abc import Mapping

FLOORS = 6
VALUES = 100_000


def holds(value: object, secrets: list[str]) -> bool:
    """Whether *value*, or something in it, is a text with one of *secrets*; looks a few floors deep."""
    pile, seen = [(value, 0)], 0
    while pile and (seen := seen + 1) < VALUES:
        each, depth = pile.pop()
        if isinstance(each, bytes | bytearray):
            each = bytes(each).decode("latin-1")
        if isinstance(each, str):
            if any(secret in each for secret in secrets):
                return True
        elif depth < FLOORS and isinstance(each, Mapping):
            pile += [(inner, depth + 1) for pair in each.items() for inner in pair]
        elif depth < FLOORS and isinstance(each, list | tuple | set | frozenset):
            pile += [(inner, depth + 1) for inner in each]
        elif depth < FLOORS and type(each).__module__ == "__main__" and hasattr(each, "__dict__"):
            pile.append((vars(each), depth + 1))
    return False
