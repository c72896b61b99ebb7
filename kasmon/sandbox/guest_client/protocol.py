"""Values of the guest program's client and of the checkpoint store."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

When: TypeAlias = Literal["before", "after", "asked"]
Output: TypeAlias = Callable[[str, str], None]
"""Called with `stdout` or `stderr`, and the text written there."""


class InterruptResult(StrEnum):
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    """The interpreter ended."""
    NONE = "no reaction"
    """The run continues."""
    NOTHING = "nothing runs"
    """No run, or another than the requested one: no interrupt was sent."""


class InterpretersState(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the interpreters inside."""

    counters: Mapping[str, int] = {}
    """Interpreter -> number of its runs, over all restarts."""
    busy: Sequence[str] = ()


class SavedInterpreters(msgspec.Struct, frozen=True, kw_only=True):
    """Saved interpreter state: opaque content, and which names were kept and lost."""

    content: bytes = b""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class CheckpointPoint(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    commit: str = ""
    size_bytes: int = 0
