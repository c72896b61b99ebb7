"""How long a new pane is waited for, and the marker that one prints on its screen where it cannot announce itself."""

from collections.abc import Sequence

FIRST_S, LONGEST_S, LIMIT_S = 0.010, 0.500, 10.0
"""The distance of the first two looks, of later ones at most, and how long to look at all, in seconds."""


def marker_of(nonce: str) -> str:
    """The marker of *nonce* (hex), for a program that prints it itself."""
    return f"KASMON_READY_{_hex(nonce)}"


def saw_marker(rows: Sequence[bytes], nonce: str) -> bool:
    """Whether a captured screen shows the marker of *nonce* on a line of its own."""
    marker = marker_of(nonce).encode()
    return any(row.strip() == marker for row in rows)


def _hex(nonce: str) -> str:
    if not nonce or set(nonce) - set("0123456789abcdef"):
        raise ValueError(f"{nonce!r} is no hex nonce")
    return nonce
