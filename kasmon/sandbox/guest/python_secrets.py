"""Whether a value of the code holds a credential, as far as one can look into it."""

import os
from collections.abc import Mapping, Sequence

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


def wipe(names: Sequence[str], values: Sequence[str]) -> None:
    """Write over what the C library still holds of variables *names*, which are unset, with one of *values*.

    It keeps every text that a variable ever had, and uses it again for the same text: so it is found.
    """
    try:
        import ctypes  # here alone: it takes longer to load than all else

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
