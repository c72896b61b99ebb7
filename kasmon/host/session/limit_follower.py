"""Starts the process that resumes sessions after a usage limit, when a session begins to wait for one."""

import asyncio
import logging

from kasmon.config import load_or_default
from kasmon.host.journal.async_writer import WRITTEN_S, LogWriter
from kasmon.model.limits.resume import waits_for_limit

log = logging.getLogger(__name__)


class LimitFollower:
    """Starts the process that resumes sessions when this one begins to wait for a usage limit and the config wants it.

    The config is read then: a limit is rare, and it may have changed since the host started.
    """

    def __init__(self, log_writer: LogWriter) -> None:
        self._log_writer = log_writer
        self._waits = waits_for_limit(log_writer.session)
        self._task: asyncio.Task[None] | None = None
        log_writer.listeners.append(self._follow)

    def close(self) -> None:
        """Stop following. Idempotent."""
        if self._follow in self._log_writer.listeners:
            self._log_writer.listeners.remove(self._follow)

    def _follow(self) -> None:
        waits = waits_for_limit(self._log_writer.session)
        if waits and not self._waits:
            self._task = asyncio.create_task(self._start())
        self._waits = waits

    async def _start(self) -> None:
        await self._log_writer.wait_for_write(WRITTEN_S)  # that process reads the log
        try:
            await asyncio.to_thread(self._start_resumer)
        except OSError as error:
            log.warning("the process that resumes sessions cannot be started: %s", error)

    def _start_resumer(self) -> None:
        paths = self._log_writer.session_log.paths
        if load_or_default(paths, log.warning).limits.resume == "auto":
            from kasmon.host.rpc.spawn import spawn_prompter  # only for that: hosts are small

            spawn_prompter(paths, "limits")
