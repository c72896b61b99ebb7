"""One result of `kasmon doctor`: an id, a level, a sentence, and a one-line fix if there is one."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail"]


class DoctorCheck(msgspec.Struct, frozen=True):
    id: str
    level: Level
    text: str
    fix: str = ""
    """One line: what the user can do about it."""
    mend: Callable[[], None] | None = None
    """The fix that `--fix` applies; only if it is harmless."""
    is_info: bool = False
    """Whether it is `ok` but only informative: something optional is unavailable, or does not apply here."""
    private: Mapping[str, str] = {}
    """Names in it that the user chose -> their replacements in a report."""
