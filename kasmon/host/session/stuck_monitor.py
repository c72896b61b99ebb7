"""Checks periodically whether a working agent makes progress, judged by its results, never by its output.

| it is stuck |
|---|
| after `after_s` without any effect: no result, no message, no file written in its folder, no working child |
| after `calls` identical calls in a row: the same tool with the same input |

It is not if it reported that it waits, or if all that is known of the program is that it runs or prints. Changes of
that are noted as events.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from kasmon.config import Limits
from kasmon.config.agent_address import machine_of
from kasmon.host.journal.async_writer import LogWriter
from kasmon.model.events import StuckSeen
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState

UNKNOWING: Final = frozenset({"launch", "process", "output"})
"""Sources of a state that know nothing about what the program does."""
ENTRIES: Final = 20_000
LOOK_S: Final = 0.2
"""The limits of one folder scan: entries and seconds; the nearest entries are scanned first."""
PASSED_BY: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".cache", "objects", "target"})
"""Folders with many writes and little work."""
BUSY: Final = 0.02
"""The share of one core since the last look from which children count as working."""


class StuckLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a working session counts as stuck. 0 means never."""

    after_s: float = 600.0
    calls: int = 5


def stuck(session: Session, limits: StuckLimits, seen_at: float, now: float) -> str:
    """Return why *session* counts as stuck at *now*; empty if it does not.

    Args:
        seen_at: when an effect without an event was last observed: a file written, a child that worked, text that
            is being written. In seconds since the epoch, as *now*.
    """
    if session.state is not SessionState.WORKING or session.waits or session.source in UNKNOWING:
        return ""
    if 0 < limits.calls <= session.progress.times:
        return f"the same call {limits.calls} times in a row"
    if 0 < limits.after_s <= now - max(quiet_since(session), seen_at):
        return f"no progress for {_span(limits.after_s)}"
    return ""


def quiet_since(session: Session) -> float:
    """Return since when the events of *session* show no effect, in seconds since the epoch."""
    return max(session.since, session.progress.at)


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def written_since(folder: str, since: float) -> float | None:
    """Return when something in *folder* was written after *since*, in seconds since the epoch; None if nothing was.

    Links are not followed. What cannot be read counts as unwritten.
    """
    until, left = time.monotonic() + LOOK_S, ENTRIES
    folders = deque([folder])
    while folders and left > 0:
        try:
            with os.scandir(folders.popleft()) as entries:
                for entry in entries:
                    left -= 1
                    if left <= 0 or time.monotonic() > until:
                        return None
                    at = entry.stat(follow_symlinks=False).st_mtime
                    if at > since:
                        return at
                    if entry.is_dir(follow_symlinks=False) and entry.name not in PASSED_BY:
                        folders.append(entry.path)
        except OSError:
            continue
    return None


class ChildActivity:
    """The work of one process's children, from look to look."""

    def __init__(self) -> None:
        self._before: tuple[int, float, float] | None = None
        """Their parent, how long they had worked, and when that was, by the monotonic clock."""

    def work(self, pid: int) -> bool | None:
        """Whether the children of process *pid* worked since the last look; None at the first, which cannot decide."""
        now, spent = time.monotonic(), _measure_use(pid)
        before, self._before = self._before, (pid, spent, now)
        if before is None or before[0] != pid:
            return None
        return spent - before[1] >= BUSY * (now - before[2])

    def forget(self) -> None:
        """Make the next look the first."""
        self._before = None


def _measure_use(pid: int) -> float:
    """Return the processor time of all descendants of *pid*, also of ended ones, in seconds."""
    import psutil  # only once a session may be stuck: hosts are small

    try:
        agent = psutil.Process(pid)
        ended = agent.cpu_times()
        spent: float = ended.children_user + ended.children_system
        children = agent.children(recursive=True)
    except (psutil.Error, AttributeError):
        return 0.0
    for child in children:
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        spent += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0)
    return spent


LOOKS: Final = 20
"""How many checks are made within the time after which a session is stuck."""
SHORTEST_S, LONGEST_S = 0.05, 15.0

log = logging.getLogger(__name__)


class StuckMonitor:
    """Monitors one session. Beyond its events, it is checked only when there were none for a while."""

    def __init__(
        self, log_writer: LogWriter, limits: StuckLimits, written_at: Callable[[], float] = lambda: 0.0
    ) -> None:
        """*written_at*: when text was last being written, which is no event yet; in seconds since the epoch."""
        self._log_writer = log_writer
        self._limits = limits
        self._written_at = written_at
        self._children = ChildActivity()
        self._seen_at = 0.0

    async def run(self) -> None:
        pause_s = LONGEST_S
        if self._limits.after_s > 0:
            pause_s = min(max(self._limits.after_s / LOOKS, SHORTEST_S), LONGEST_S)
        while self._limits.after_s > 0 or self._limits.calls > 0:
            await asyncio.sleep(rest_s(self._log_writer.session.state, pause_s))
            try:
                await self._check()
            except Exception:  # a failed check shows nothing about the agent, and the next one may succeed
                log.exception("could not look whether the agent is stuck")

    async def _check(self) -> None:
        session = self._log_writer.session
        if session.state is not SessionState.WORKING or session.waits:
            self._children.forget()
            return
        quiet_at = max(quiet_since(session), self._written_at(), self._seen_at)
        if self._limits.after_s and time.time() - quiet_at >= self._limits.after_s / 2:
            seen_at = await asyncio.to_thread(self._find_effect, session, quiet_at)
            if seen_at is None:
                return
            self._seen_at = max(self._seen_at, seen_at)
        session, now = self._log_writer.session, time.time()
        why = stuck(session, self._limits, max(self._seen_at, self._written_at()), now)
        if why != session.stuck_why:
            self._log_writer.note(StuckSeen(at=now, why=why))

    def _find_effect(self, session: Session, since: float) -> float | None:
        """Return when an effect was seen after *since*, 0 if none was; None if that is not known (yet). Blocks."""
        if machine_of(session.agent):
            return None  # a remote agent's files and child processes are not visible here
        works = self._children.work(session.pid) if session.pid is not None else False
        if works:
            return time.time()
        at = written_since(session.workdir, since) if session.workdir else None
        if at is not None:
            return min(at, time.time())
        return None if works is None else 0.0


def rest_s(state: SessionState, pause_s: float) -> float:
    """Return the pause to the next check. All idle sessions of one host are checked together: one wake-up for all."""
    return pause_s if state is SessionState.WORKING else pause_s - asyncio.get_running_loop().time() % pause_s


def limits_of(limits: Limits) -> StuckLimits:
    return StuckLimits(after_s=limits.stuck_after_minutes * 60, calls=limits.stuck_after_calls)
