"""Stores the files of a session's folder before and after each turn, if it is in a repository."""

import asyncio
import logging
import time
from collections import deque
from pathlib import Path
from typing import Final

from kasmon.errors import KasmonError
from kasmon.host.journal.async_writer import LogWriter
from kasmon.model.events import NoticeRaised
from kasmon.model.session import Session
from kasmon.model.session_state import ALIVE

CLOSE_S: Final = 20.0
"""How long a host that ends waits until the files of its last turn are stored."""

log = logging.getLogger(__name__)


class TurnRecorder:
    """Follows the events of one session, from its construction until it is closed. A failure never stops the agent."""

    def __init__(self, log_writer: LogWriter) -> None:
        self._log_writer = log_writer
        self._is_in_turn = _is_in_turn(log_writer.session)
        self._moments: deque[bool] = deque()
        """Turns that began (true) or ended, and are not stored yet."""
        self._turn: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        log_writer.listeners.append(self._follow)

    async def aclose(self) -> None:
        """Stop following, and wait until what happened is stored. Idempotent."""
        if self._follow in self._log_writer.listeners:
            self._log_writer.listeners.remove(self._follow)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S)

    def _follow(self) -> None:
        is_in_turn = _is_in_turn(self._log_writer.session)
        if is_in_turn is self._is_in_turn:
            return
        self._is_in_turn = is_in_turn
        self._moments.append(is_in_turn)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store())

    async def _store(self) -> None:
        while self._moments:
            try:
                await asyncio.to_thread(self._store_moment, is_begin=self._moments.popleft())
            except (KasmonError, OSError, ValueError) as error:
                self._turn = None
                log.warning("the files of a turn are not stored: %s", error)
                if not self._has_failed:
                    self._has_failed = True
                    text = f"The files before and after turns are not stored: {error}"
                    self._log_writer.note(NoticeRaised(at=time.time(), text=text, level="warning"))

    def _store_moment(self, *, is_begin: bool) -> None:
        session, folder = self._log_writer.session, Path(self._log_writer.session.workdir)
        if is_begin:
            self._turn = None
            if not any((place / ".git").exists() for place in (folder, *folder.parents)):
                return
        elif self._turn is None:
            return
        from kasmon.repository.turn_trees import TurnTrees  # only in repositories: hosts are small

        trees = TurnTrees(self._log_writer.session_log.paths.turns(session.id))
        if is_begin:
            self._turn = trees.begin(folder)
        elif self._turn is not None:
            trees.end(folder, self._turn)
            self._turn = None


def _is_in_turn(session: Session) -> bool:
    return session.state in ALIVE and (session.in_turn or session.worked)
