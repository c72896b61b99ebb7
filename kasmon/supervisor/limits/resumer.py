"""Resumes the sessions that wait for a usage limit: the process, which ends when none is left, and what it does.

It keeps no state outside the log of resumptions.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from kasmon.asyncio_tasks import cancel_and_wait
from kasmon.config import load_or_default
from kasmon.config.schema import Limits
from kasmon.errors import KasmonError, UnavailableError, UsageError
from kasmon.host.rpc.locked_process import begin_process, run_work
from kasmon.model.fleet import Fleet
from kasmon.model.limits.resume import (
    ResumeEnded,
    ResumeFailed,
    ResumePolicy,
    ResumeSent,
    ResumeSteps,
    Resumption,
    next_resumptions,
)
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.store.resume_log import ResumeLog
from kasmon.supervisor.fleet.snapshot import read_fleet
from kasmon.supervisor.fleet.wait import fleets
from kasmon.supervisor.limits.permission import has_wanted, is_resumer_needed, next_prompt
from kasmon.supervisor.sessions.session_operations import send

LOOK_S: Final = 20.0
"""How often the time is compared at least, in seconds: a clock may be changed, and a machine may have slept."""
NEWS_S: Final = 0.5
"""The shortest time between two fleets, in seconds."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Resume sessions until none is left; 0 also if another process does it."""
    if argv:
        return UsageError.exit_code
    paths = begin_process()

    def is_over() -> bool:
        config = load_or_default(paths, log.warning)
        return not is_resumer_needed(paths, config, read_fleet(paths).sessions)

    return run_work(paths.limits, paths.resumer_lock, lambda: Resumer(paths).run(), is_over)


def policy_of(limits: Limits) -> ResumePolicy:
    return ResumePolicy(mode=limits.resume, spacing_s=limits.resume_spacing_s, at_once=limits.resume_at_once)


class Resumer:
    """Resumes sessions; the caller holds the lock, so that none is resumed twice."""

    def __init__(
        self,
        paths: Paths,
        clock: Callable[[], float] = time.time,
        ticking: Callable[[], float] = time.monotonic,
    ) -> None:
        """*clock*: the time of day; *ticking*: a clock that does not jump."""
        self._paths, self._clock, self._ticking = paths, clock, ticking
        self._resume_log = ResumeLog(paths)
        self._last: float | None = None

    async def run(self) -> None:
        """Resume sessions until none is left that may be."""
        async with fleets(self._paths, NEWS_S) as changes:
            fleet = await anext(changes)
            upcoming = asyncio.ensure_future(anext(changes))
            try:
                while (pause_s := await self.step(fleet)) is not None:
                    await asyncio.wait([upcoming], timeout=min(pause_s, LOOK_S))
                    if upcoming.done():
                        fleet = upcoming.result()
                        upcoming = asyncio.ensure_future(anext(changes))
            finally:
                await cancel_and_wait(upcoming)

    async def step(self, fleet: Fleet) -> float | None:
        """Do what is due, and return in how many seconds to look again; None once nothing is left to resume.

        If the log of resumptions cannot be written or read, as on a full disk, nothing is resumed until it can.
        """
        try:
            return await self._do_due(fleet)
        except (UnavailableError, OSError) as error:
            log.warning("no session is resumed now: %s", error)
            return LOOK_S

    async def _do_due(self, fleet: Fleet) -> float | None:
        await asyncio.to_thread(self._resume_log.more)
        policy = policy_of((await asyncio.to_thread(load_or_default, self._paths, log.warning)).limits)
        steps = self._next(fleet, policy)
        for session, why in steps.ended.items():
            await asyncio.to_thread(self._resume_log.add, ResumeEnded(at=self._clock(), session=session, why=why))
        if steps.send is not None:
            self._last = self._ticking()
            await self._resume(steps.send)
        if steps.send is None and not self._is_needed(fleet, policy):
            return None
        return LOOK_S if steps.next_at is None else max(0.1, steps.next_at - self._clock())

    def _next(self, fleet: Fleet, policy: ResumePolicy) -> ResumeSteps:
        since_last_s = policy.spacing_s if self._last is None else self._ticking() - self._last
        return next_resumptions(fleet.sessions, self._resume_log.resumptions, policy, self._clock(), since_last_s)

    def _is_needed(self, fleet: Fleet, policy: ResumePolicy) -> bool:
        """Whether a session waits that may be resumed, or one that was resumed is still at work."""
        known = self._resume_log.resumptions
        return any(each.tries for each in known.values()) or has_wanted(known, fleet.sessions, policy)

    async def _resume(self, session: Session) -> None:
        """Send the prompt of *session*; a failure is logged as that of this try."""
        known = self._resume_log.resumptions.get(session.id, Resumption())
        prompt = await asyncio.to_thread(next_prompt, self._paths, session, known)
        await asyncio.to_thread(self._resume_log.add, ResumeSent(at=self._clock(), session=session.id, prompt=prompt))
        try:
            receipt = await send(self._paths, session, prompt, "now")
            log.info("resumed %s: %s", session.label, receipt.state)
        except KasmonError as error:
            log.warning("could not resume %s: %s", session.label, error)
            failed = ResumeFailed(at=self._clock(), session=session.id, why=error.message)
            await asyncio.to_thread(self._resume_log.add, failed)
