"""Refused connections and their reasons: a log file of bounded size beside the sandbox's proxy."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

FULL: Final = 64 * 1024
"""Bytes; a larger file is rewritten with the newest `KEPT`."""
KEPT: Final = 50
SAME_S: Final = 1.0
"""The same refusal within this time is not written again."""


class Denial(NamedTuple):
    """One refused connection."""

    at: float
    host: str
    """Empty if the requested host is not a host name."""
    port: int
    why: str
    fix: str = ""
    """The command by which the user allows it; empty if none does."""
    entry: str = ""
    """The allowlist entry in that command; empty if none."""

    @property
    def sentence(self) -> str:
        return f"{self.why}; allow it with `{self.fix}`." if self.fix else f"{self.why}."


class DenialLog:
    """Appends refusals to the file open at *handle*, for the proxy. Not thread-safe."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._seen: dict[tuple[str, int, str], float] = {}
        self._newest: list[bytes] = []
        self._size = os.fstat(handle).st_size

    def note(self, denial: Denial) -> bool:
        """Write *denial*, unless it was just written; return whether it was written."""
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
    """Return the refusals after *since*, oldest first, one per host and port; none if there is no file."""
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
