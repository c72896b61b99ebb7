"""Finds credentials in values of the code, to a limited depth, and overwrites them in the C library's environment."""

import os
from collections.abc import Mapping, Sequence

FLOORS = 6
VALUES = 100_000


def holds(value: object, secrets: list[str]) -> bool:
    """Whether *value*, or a value in it up to `FLOORS` levels deep, is a text that contains one of *secrets*."""
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


def wipe(names: Sequence[str], values: Sequence[str]) -> None:
    """Overwrite the C library's copies of the unset variables *names* with one of *values*.

    It keeps each string that a variable ever had, and reuses it for an equal one: so setting it again finds the copy.
    """
    try:
        import ctypes  # imported here: it takes long to load

        library = ctypes.CDLL(None)
        library.getenv.restype = ctypes.c_void_p
        for name in names:
            for value in values:
                os.putenv(name, value)
                at = library.getenv(os.fsencode(name))
                if at:
                    ctypes.memset(at, 0, len(os.fsencode(value)))
                os.unsetenv(name)
    except (ImportError, OSError, AttributeError, ValueError):
        return
