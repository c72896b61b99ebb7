"""Watch folders for changed files: one watch of the file system for all that follow some of them."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import PurePath
from typing import Final

import watchfiles

SETTLE_MS: Final = 200
"""How long changes are gathered before they are reported, in ms."""
LOOK_MS: Final = 500
"""How often it is checked whether a follower is over, in ms."""
ALL_S: Final = 60.0
"""How often all folders are reported: the system may drop reports."""

IsRelevant = Callable[[watchfiles.Change, str], bool]
"""Whether a change of a path matters."""
Changes = set[tuple[watchfiles.Change, str]]


class FolderWatch:
    """Watches all folders that are followed; it starts again, and reports them all, where one is new."""

    def __init__(self) -> None:
        self._followers: list[_Follower] = []
        self._watched: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def follow(
        self, folders: Iterable[str], is_over: Callable[[], bool], is_relevant: IsRelevant
    ) -> AsyncGenerator[frozenset[str], None]:
        """Yield those of *folders* in which something changed, and now and then all, until *is_over*.

        Raises `OSError` or `RuntimeError` if the system does not report changes.
        """
        follower = _Follower(frozenset(folders), is_relevant)
        if not follower.folders:
            while not is_over():  # noqa: ASYNC110  # new sessions are not signalled here
                await asyncio.sleep(LOOK_MS / 1000)
            return
        self._followers.append(follower)
        looked_at = -math.inf  # the first report finds what changed before the watch began
        try:
            self._update()
            while True:
                stale = await follower.wait()
                if is_over():
                    return
                if time.monotonic() > looked_at + ALL_S:
                    looked_at = time.monotonic()
                    yield follower.folders
                elif stale:
                    yield stale
        finally:
            self._followers.remove(follower)
            self._update()

    def _update(self) -> None:
        """Start, restart or end the watch, as the followers require."""
        if not self._followers:
            if self._task is not None:
                self._task.cancel()
                self._task = None
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._report())
        elif any(not each.folders <= self._watched for each in self._followers):
            self._stop.set()

    async def _report(self) -> None:
        try:
            while True:
                self._watched = frozenset[str]().union(*(each.folders for each in self._followers))
                self._stop = asyncio.Event()
                has_begun = False
                async for changes in watchfiles.awatch(
                    *sorted(self._watched),
                    watch_filter=self._is_relevant,
                    stop_event=self._stop,
                    step=SETTLE_MS,
                    rust_timeout=LOOK_MS,
                    yield_on_timeout=True,
                    ignore_permission_denied=True,
                ):
                    for each in [each for each in self._followers if each.folders <= self._watched]:
                        each.report(changes if has_begun else None)
                    has_begun = True
        except (OSError, RuntimeError) as error:
            for each in self._followers:
                each.fail(error)

    def _is_relevant(self, change: watchfiles.Change, path: str) -> bool:
        return any(each.is_relevant(change, path) for each in self._followers)


class _Follower:
    """One that follows *folders*."""

    def __init__(self, folders: frozenset[str], is_relevant: IsRelevant) -> None:
        self.folders, self.is_relevant = folders, is_relevant
        self._stale: frozenset[str] = frozenset()
        self._error: Exception | None = None
        self._reported = asyncio.Event()

    def report(self, changes: Changes | None) -> None:
        """Take *changes*, which may be empty; None where any file may have changed."""
        if changes is None:
            self._stale = self.folders
        else:
            paths = [PurePath(path) for change, path in changes if self.is_relevant(change, path)]
            self._stale |= {top for top in self.folders if any(path.is_relative_to(top) for path in paths)}
        self._reported.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._reported.set()

    async def wait(self) -> frozenset[str]:
        """Wait for the next report, and return the folders that changed; at times, none. Raises as `follow`."""
        await self._reported.wait()
        self._reported.clear()
        if self._error is not None:
            raise self._error
        stale, self._stale = self._stale, frozenset()
        return stale
