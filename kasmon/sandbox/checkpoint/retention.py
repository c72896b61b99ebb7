"""Which checkpoints are retained: the first, the newest, and the newest of those the user requested. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

GIB = 1024 * 1024 * 1024


class RetentionLimits(NamedTuple):
    """How many checkpoints of one session are retained."""

    newest: int = 100
    asked: int = 20
    bytes: int = 4 * GIB
    """On disk, for all together; beyond it the older half is dropped."""


class RetainedCheckpoint(Protocol):
    """The fields of a checkpoint that retention needs."""

    @property
    def id(self) -> str: ...

    @property
    def when(self) -> str: ...


def select_dropped(
    checkpoints: Sequence[RetainedCheckpoint], keep: RetentionLimits, *, too_much: bool = False
) -> set[str]:
    """Return the ids to drop of *checkpoints*, oldest first; with *too_much* on disk also the older half.

    The first one and the newest one always stay.
    """
    newest = max(1, min(keep.newest, len(checkpoints) // 2)) if too_much else max(1, keep.newest)
    asked = [each.id for each in checkpoints if each.when == "asked"][-keep.asked or len(checkpoints) :]
    retained = {each.id for each in (*checkpoints[:1], *checkpoints[-newest:])} | (set() if too_much else set(asked))
    return {each.id for each in checkpoints} - retained
