"""Who was not reached, and why: a short list that a sandbox cannot fill, in a file beside its proxy."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

FULL: Final = 64 * 1024
"""Bytes; a file that has more is begun again with the newest `KEPT`."""
KEPT: Final = 50
SAME_S: Final = 1.0
"""The same host, refused again within this time, is not written again."""


class Denial(NamedTuple):
    """One wish that was refused."""

    at: float
    host: str
    """Empty where what was asked for is no host name."""
    port: int
    why: str
    fix: str = ""
    """The command by which a person allows it; empty where none does."""
    entry: str = ""
    """What of that command says whom; empty where none does."""

    @property
    def sentence(self) -> str:
        """For people and programs alike."""
        return f"{self.why}; allow it with `{self.fix}`." if self.fix else f"{self.why}."


class DenialLog:
    """The pen of the proxy: writes refusals to the file open at *handle*, at its end. Not to be used by two threads."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._seen: dict[tuple[str, int, str], float] = {}
        self._newest: list[bytes] = []
        self._size = os.fstat(handle).st_size

    def note(self, denial: Denial) -> bool:
        """Write *denial*, unless it was written just now; says whether it was."""
        key = (denial.host, denial.port, denial.why)
        if denial.at - self._seen.pop(key, float("-inf")) < SAME_S:
            self._seen[key] = denial.at
            return False
        self._seen[key] = denial.at
        if len(self._seen) > KEPT:
            del self._seen[next(iter(self._seen))]
        line = json.dumps(denial).encode() + b"\n"
        self._newest = [*self._newest, line][-KEPT:]
        if self._size + len(line) > FULL:
            os.ftruncate(self._handle, 0)
            self._size, line = 0, b"".join(self._newest)
        os.write(self._handle, line)
        self._size += len(line)
        return True


def read_denials(path: Path, since: float = 0.0) -> tuple[Denial, ...]:
    """The refusals after *since*, oldest first, one for each host and port; none where there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return ()
    newest: dict[tuple[str, int], Denial] = {}
    for line in lines:
        denial = _read(line)
        if denial is not None and denial.at > since:
            newest.pop((denial.host, denial.port), None)
            newest[denial.host, denial.port] = denial
    return tuple(newest.values())


def _read(line: bytes) -> Denial | None:
    try:
        at, host, port, why, fix, *more = json.loads(line)
        entry = str(more[0]) if more else ""  # a proxy of an earlier version writes none
        return Denial(float(at), str(host), int(port), str(why), str(fix), entry)
    except (ValueError, TypeError):
        return None
