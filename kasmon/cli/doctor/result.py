"""One thing that `kasmon doctor` looked at: an id, a level, a sentence, and a one-line fix where there is one."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail"]


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    id: str
    level: Level
    text: str
    fix: str = ""
    """One line: what a person would do about it."""
    mend: Callable[[], None] | None = None
    """What `--fix` does about it; only where that is harmless."""
    is_info: bool = False
    """Whether it is `ok` and nothing to praise: something optional is unavailable, or does not apply here."""
    private: Mapping[str, str] = {}
    """The names of a person's own in it, each with what stands for it in a report."""
