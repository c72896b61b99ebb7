"""When a new pane is ready: it announced its nonce, or a marker stands on its screen. All are awaited together."""

from collections.abc import Iterator, Sequence

import msgspec

FIRST_S, LONGEST_S, LIMIT_S = 0.010, 0.500, 10.0


class Readiness(msgspec.Struct, frozen=True):
    """What became of panes that were awaited."""

    ready: frozenset[str]
    dead: frozenset[str]
    """Ended before they were ready, or not there: their screen says why."""
    late: frozenset[str]
    """Neither, when the time was over."""


def waits(limit_s: float = LIMIT_S) -> Iterator[float]:
    """How long to wait before each next look, in seconds: 10 ms, doubling up to 500 ms, *limit_s* in all."""
    wait_s, left_s = FIRST_S, limit_s
    while left_s > 0:
        yield min(wait_s, left_s)
        left_s -= wait_s
        wait_s = min(wait_s * 2, LONGEST_S)


def marker_command(nonce: str) -> str:
    """What to type (and Enter) into a shell or a remote pane, so that the marker of *nonce* (hex) comes on a line.

    The typed text does not hold the marker itself, so its echo is not taken for the answer.
    """
    return f"printf '\\n%s%s\\n' KASMON_READY_ {_hex(nonce)}"


def marker_of(nonce: str) -> str:
    """The marker of *nonce* (hex), for a program that prints it itself."""
    return f"KASMON_READY_{_hex(nonce)}"


def saw_marker(rows: Sequence[bytes], nonce: str) -> bool:
    """Whether a captured screen shows what `marker_command(nonce)` prints."""
    marker = marker_of(nonce).encode()
    return any(row.strip() == marker for row in rows)


def _hex(nonce: str) -> str:
    if not nonce or set(nonce) - set("0123456789abcdef"):
        raise ValueError(f"{nonce!r} is no hex nonce")
    return nonce
