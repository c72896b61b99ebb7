"""Hibernates a session that is idle for long, by `kasmon hibernate`: that proves first that its agent can be resumed.

A host is small and knows nothing of the files in which agents store conversations, so it runs the command. If that
refuses, it is run again after as long a time.
"""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from kasmon.host.journal.async_writer import LogWriter
from kasmon.host.session.stuck_monitor import rest_s
from kasmon.model.hibernation import find_obstacle

LOOKS: Final = 4
"""How many checks are made within the time after which a session is hibernated."""
SHORTEST_S, LONGEST_S = 0.05, 30.0

log = logging.getLogger(__name__)


class IdleMonitor:
    """Monitors one session that has no sandbox."""

    def __init__(self, log_writer: LogWriter, after_s: float, is_watched: Callable[[], bool]) -> None:
        """*is_watched*: whether a person looks at it; it counts as used then."""
        self._log_writer = log_writer
        self._after_s = after_s
        self._is_watched = is_watched
        self._used_at = 0.0
        """When it was last watched, or an attempt was refused, in seconds since the epoch."""

    async def run(self) -> None:
        pause_s = min(max(self._after_s / LOOKS, SHORTEST_S), LONGEST_S)
        while True:
            await asyncio.sleep(rest_s(self._log_writer.session.state, pause_s))
            if self._is_watched():
                self._used_at = time.time()
            elif self._is_due(time.time()):
                await asyncio.to_thread(self._hibernate)
                self._used_at = time.time()

    def _is_due(self, now: float) -> bool:
        session = self._log_writer.session
        return now - max(session.since, self._used_at) >= self._after_s and not find_obstacle(session)

    def _hibernate(self) -> None:
        session = self._log_writer.session.id
        argv = [sys.executable, "-P", "-m", "kasmon", "hibernate", session]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            log.info("session %s is idle and was not hibernated: %s", session, done.stderr.strip())
