"""The marks of `LiveGateway` in the list: branches, and files that several sessions change. Light before the first one.

Those of this machine follow its files; other machines are asked (`kasmon.supervisor.machines.marks`).
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kasmon.config import Config
from kasmon.config.profile import programs
from kasmon.model.collisions import CollisionSummary, summarize
from kasmon.model.fleet import Fleet
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.paths import Paths
from kasmon.repository.branch import BranchSummary

if TYPE_CHECKING:
    from kasmon.supervisor.machines.marks import MachineMarks
    from kasmon.supervisor.worktrees.folder_watch import FolderWatch

LOOK_S: Final = 1.0
"""How often to check whether there are sessions by now, in seconds."""

Mark = TypeVar("Mark")


class LiveMarks:
    """Follows what sessions are marked with; the parameters return the current values."""

    def __init__(
        self,
        paths: Paths,
        fleet: Callable[[], Fleet],
        list_own: Callable[[], tuple[Session, ...]],
        config: Callable[[], Config],
    ) -> None:
        """*list_own*: returns the sessions of this machine, the same tuple while none of them changes."""
        self._paths, self._fleet, self._here, self._config = paths, fleet, list_own, config
        self._others: MachineMarks | None = None
        self._checked: tuple[tuple[Session, ...], tuple[Session, ...]] = (), ()
        """The sessions of this machine, and those of them whose files are checked for collisions."""

    def collisions(self) -> AsyncIterator[Mapping[SessionId, CollisionSummary]]:
        return _merge(self._own_collisions(), self._collisions_elsewhere())

    def branches(self, is_viewed: Callable[[], bool]) -> AsyncIterator[Mapping[SessionId, BranchSummary]]:
        return _merge(self._own_branches(is_viewed), self._branches_elsewhere())

    async def _own_collisions(self) -> AsyncGenerator[Mapping[SessionId, CollisionSummary], None]:
        await import_in_thread("kasmon.supervisor.worktrees.collision_watch")
        from kasmon.supervisor.worktrees.collision_watch import sweeps  # not before the first frame

        async for sweep in sweeps(self._list_collision_sessions, self._folder_watch):
            names = {session.id: session.label for session in self._here()}
            yield await asyncio.to_thread(self._summarize_sharers) | {
                session: summarize([(names.get(other, other), hit) for other, hit in found])._replace(
                    others=tuple(dict.fromkeys(other for other, _ in found))
                )
                for session, found in sweep.hits.items()
            }

    def _summarize_sharers(self) -> dict[SessionId, CollisionSummary]:
        """The sessions that came into a checkout in which another agent works already."""
        from kasmon.supervisor.worktrees.shared_checkout import (
            describe_sharers,
            list_sharers,
        )  # not before the first frame

        sessions, profiles = self._here(), programs(self._config())
        sharers = {each.id: list_sharers(each, sessions, profiles) for each in sessions if each.exists}
        return {
            session: CollisionSummary(describe_sharers(found), lines=False)
            for session, found in sharers.items()
            if found
        }

    @functools.cached_property
    def _folder_watch(self) -> "FolderWatch":
        from kasmon.supervisor.worktrees.folder_watch import FolderWatch  # not before the first frame

        return FolderWatch()

    def _list_collision_sessions(self) -> tuple[Session, ...]:
        """The sessions whose files are checked for collisions; the same tuple while no session here changes."""
        own_sessions, checked = self._checked
        if own_sessions is not (now := self._here()):
            checked = tuple(session for session in now if session.exists and not session.adopted)
            self._checked = now, checked
        return checked

    async def _own_branches(
        self, is_viewed: Callable[[], bool]
    ) -> AsyncGenerator[Mapping[SessionId, BranchSummary], None]:
        while not self._here():  # noqa: ASYNC110 - events are what it waits for
            await asyncio.sleep(LOOK_S)
        await import_in_thread("kasmon.supervisor.finish.branch_watch")
        from kasmon.supervisor.finish.branch_watch import watch_branches  # only for sessions with worktrees

        def may_ask() -> bool:
            return self._config().finish.watch or is_viewed()

        def fix_rounds() -> int:
            return self._config().finish.rounds if self._config().finish.auto_fix else 0

        async for branches in watch_branches(self._paths, self._here, self._folder_watch, may_ask, fix_rounds):
            yield branches

    async def _branches_elsewhere(self) -> AsyncGenerator[Mapping[SessionId, BranchSummary], None]:
        async for branches in (await self._machine_marks()).branches():
            yield branches

    async def _collisions_elsewhere(self) -> AsyncGenerator[Mapping[SessionId, CollisionSummary], None]:
        async for collisions in (await self._machine_marks()).collisions():
            yield collisions

    async def _machine_marks(self) -> "MachineMarks":
        """Return the marks of the sessions of other machines, once there is such a session."""
        while not any(each.via for each in self._fleet().sessions):  # noqa: ASYNC110 - events are what it waits for
            await asyncio.sleep(LOOK_S)
        module = await asyncio.to_thread(import_module, "kasmon.supervisor.machines.marks")
        self._others = self._others or module.MachineMarks(self._paths, lambda: self._fleet().sessions)
        return self._others


async def _merge(*sources: AsyncGenerator[Mapping[SessionId, Mark], None]) -> AsyncIterator[Mapping[SessionId, Mark]]:
    """Yield what *sources* yielded last, together, after each change of one; none of them ends by itself."""
    latest: list[Mapping[SessionId, Mark]] = [{} for _ in sources]
    coming: dict[asyncio.Future[Any], int] = {asyncio.ensure_future(anext(each)): n for n, each in enumerate(sources)}
    try:
        while True:
            await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for come in [each for each in coming if each.done()]:
                latest[n := coming.pop(come)] = come.result()
                coming[asyncio.ensure_future(anext(sources[n]))] = n
            yield {session: mark for part in latest for session, mark in part.items()}
    finally:
        for each in coming:
            each.cancel()
        await asyncio.wait(coming)
        for source in sources:
            await source.aclose()


async def import_in_thread(module: str) -> None:
    """Import *module* in a thread, so that a later import of it does not block the loop."""
    await asyncio.to_thread(import_module, module)
