"""Which checkpoints stay: the first, the newest, and the newest of those that somebody asked for. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

GIB = 1024 * 1024 * 1024


class RetentionLimits(NamedTuple):
    """How many checkpoints of one session stay."""

    newest: int = 100
    asked: int = 20
    bytes: int = 4 * GIB
    """On disk, for all together; beyond it the older half goes."""


class RetainedCheckpoint(Protocol):
    """A checkpoint, as far as this needs it."""

    @property
    def id(self) -> str: ...

    @property
    def when(self) -> str: ...


def dropped(checkpoints: Sequence[RetainedCheckpoint], keep: RetentionLimits, *, too_much: bool = False) -> set[str]:
    """The ids of those that go, of *checkpoints*, oldest first; with *too_much* on disk the older half too.

    The first one and the newest one always stay.
    """
    newest = max(1, min(keep.newest, len(checkpoints) // 2)) if too_much else max(1, keep.newest)
    asked = [each.id for each in checkpoints if each.when == "asked"][-keep.asked or len(checkpoints) :]
    stay = {each.id for each in (*checkpoints[:1], *checkpoints[-newest:])} | (set() if too_much else set(asked))
    return {each.id for each in checkpoints} - stay
