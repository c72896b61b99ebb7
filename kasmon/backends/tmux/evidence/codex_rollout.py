"""The conversation of a codex, its permission mode and its limits, from the rollout that it keeps open. Read only.

As codex 0.169 writes it. A line `turn_context` (with each turn) or `thread_settings_applied` (with each change, a turn
or not) contains the approval policy, the sandbox and whether codex plans.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kasmon import system
from kasmon.backends.common.json_access import Table, table, text
from kasmon.backends.common.limit_windows import codex_windows
from kasmon.backends.common.transcripts import parse_object
from kasmon.model.codex_permissions import PLAN, CodexPermissions
from kasmon.model.limits.window import LimitWindow
from kasmon.paths import open_regular

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NAME: Final = re.compile(rf"rollout-.*-({UUID})\.jsonl")

MARKS: Final = (b'"type":"turn_context"', b'"type":"thread_settings_applied"')
"""Marks of the lines that contain codex's settings."""
LIMITS_MARK: Final = b'"type":"token_count"'
"""The mark of the lines with token counts, which contain the rate limits after each answer of the provider."""
BLOCK_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 16 << 20
"""How much of its end is searched for such a line."""


class CodexRollout:
    """The open rollout file of one codex, read on from the last position."""

    def __init__(self) -> None:
        self._path = ""
        self._read_to = 0
        self._mode = ""
        self.limits: tuple[LimitWindow, ...] = ()
        """The limits of its account in its latest report; empty until the file contains one."""

    def permission_mode(self, pids: Iterable[int]) -> str:
        """Return its latest permission mode; empty until the file contains one. Blocks."""
        for path, file in rollouts(pids):
            with contextlib.suppress(OSError):
                self._update(path, file)
        return self._mode

    def _update(self, path: str, file: Path) -> None:
        if path != self._path or file.stat().st_size < self._read_to:
            self._path, self._read_to = path, 0
        self.limits = tuple(codex_windows(rate_limits(file, since=self._read_to))) or self.limits
        found_settings = permissions(file, since=self._read_to)
        self._mode, self._read_to = found_settings.mode or self._mode, found_settings.read_to


def permissions(file: Path, *, since: int = 0) -> CodexPermissions:
    """Return codex's latest settings in the rollout *file*, from byte *since* on.

    Raises:
        OSError: if it cannot be read.
    """
    now: Table = {}
    sandbox = ""
    with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as opened:
        end = _end_of_lines(opened.fileno(), since)
        for line in _backwards(opened.fileno(), since, end):
            found_settings = _settings(line) if any(mark in line for mark in MARKS) else {}
            now = now or found_settings
            if "sandbox_policy" in found_settings:
                is_same = found_settings.get("permission_profile") == now.get("permission_profile")
                sandbox = text(found_settings["sandbox_policy"], "type") if is_same else ""
                break
    policy = now.get("approval_policy")
    return CodexPermissions(
        policy=policy if isinstance(policy, str) else "granular" if policy else "",
        sandbox=sandbox,
        is_planning=text(now.get("collaboration_mode"), "mode") == PLAN,
        read_to=end,
    )


def rate_limits(file: Path, *, since: int = 0) -> Table:
    """Return codex's latest rate limit snapshot in the rollout *file*, from byte *since* on; empty if there is none.

    Raises:
        OSError: if it cannot be read.
    """
    with os.fdopen(open_regular(file, os.O_RDONLY), "rb") as opened:
        for line in _backwards(opened.fileno(), since, _end_of_lines(opened.fileno(), since)):
            if LIMITS_MARK in line and (found := table(parse_object(line), "payload", "rate_limits")):
                return found
    return {}


def _settings(line: bytes) -> Table:
    """Return the settings in a line; empty if it cannot be parsed."""
    payload = table(parse_object(line), "payload")
    return table(payload, "thread_settings") if "thread_settings" in payload else payload


def _end_of_lines(handle: int, since: int) -> int:
    """Return the offset behind the last complete line of the file after byte *since*."""
    end = os.fstat(handle).st_size
    while end > since:
        start = max(since, end - BLOCK_BYTES)
        if (at := os.pread(handle, end - start, start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return since


def _backwards(handle: int, since: int, end: int) -> Iterator[bytes]:
    """Yield the complete lines between the bytes *since* and *end*, the last first; at most `MOST_BYTES` of them."""
    since, rest = max(since, end - MOST_BYTES), b""
    while end > since:
        start = max(since, end - BLOCK_BYTES)
        rest, *lines = (os.pread(handle, end - start, start) + rest).split(b"\n")
        yield from reversed(lines)
        end = start
    if rest:
        yield rest


def rollout(pids: Iterable[int]) -> str:
    """Return the id of the one conversation that *pids* have open; empty if there is none, or more than one."""
    found = {match[1] for path, _ in rollouts(pids) if (match := match_path(path))}
    return found.pop() if len(found) == 1 else ""


def rollouts(pids: Iterable[int]) -> Iterator[tuple[str, Path]]:
    """Yield the rollouts that *pids* have open: each path as the process has it, and a path to open the file."""
    for pid in pids:
        with contextlib.suppress(OSError):
            yield from (
                (path, Path(readable)) for path, readable in system.HERE.list_open_files(pid) if match_path(path)
            )


class OpenRollouts:
    """The rollouts that some processes have open; their files are listed again when they opened or closed one."""

    def __init__(self) -> None:
        self._rollouts: list[tuple[str, Path]] = []
        self._counts: list[int] = []
        """How many files each process had open then."""

    def read(self, pids: Iterable[int], *, afresh: bool = False) -> list[tuple[str, Path]]:
        """Return the rollouts that *pids* have open, as `rollouts`. Blocks.

        *afresh*: in any case; else a rollout is missed that was opened while another file was closed.
        """
        pids = list(pids)
        counts = [system.HERE.count_open_files(pid) for pid in pids]
        is_known = counts == self._counts and 0 not in counts and all(_is_link(*each) for each in self._rollouts)
        if afresh or not is_known:
            self._rollouts, self._counts = list(rollouts(pids)), counts
        return self._rollouts


def _is_link(path: str, file: Path) -> bool:
    try:
        return os.readlink(file) == path  # noqa: PTH115 - ten times a second
    except OSError:
        return False


def match_path(path: str) -> re.Match[str] | None:
    """Match a path of a rollout file; the first group is the conversation."""
    return NAME.fullmatch(Path(path).name)
