"""What a gVisor sandbox is not, in words: for `doctor`, for who makes one, and for the tests that hold it to that."""

from collections.abc import Mapping
from typing import Final

KNOWN: Final = "its kernel is its own, and runs as root here; nothing limits the memory of all its processes together"
LACKS: Final[Mapping[str, str]] = {"memory": "gVisor holds no process in it to a limit of its memory"}
"""What the other tiers have and this one has not, each by the name under which tests look for it."""
OLD_LACKS: Final[Mapping[str, str]] = {
    "statx": "the gVisor of Debian 12 knows too little of `statx`: `ls` and `stat` fail in it, other programs do not,"
    " and Ctrl-C in an agent's terminal is only a key, and no signal"
}
OLD: Final = 20221219
"""The release of which `OLD_LACKS` is true."""
NEWER: Final = "Name a newer one, as that of Debian 13, in KASMON_RUNSC"


def lacks_of(released: int) -> Mapping[str, str]:
    """What the program that was *released* then (20240729) cannot, that the other tiers can: by a name, in words."""
    return {**LACKS, **(OLD_LACKS if released <= OLD else {})}


def told_of(released: int) -> tuple[str, ...]:
    """What an old program cannot, and how to have a newer one; empty for one that is new enough."""
    return tuple(f"{each}. {NEWER}." for each in OLD_LACKS.values()) if released <= OLD else ()
