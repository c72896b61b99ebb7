"""What the system tells of changed files, as hints where to look next; where it tells nothing, time passes.

inotify drops events when its queue is full and has none for network file systems, so nobody may rely on a hint.
"""

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.supervisor.fleet.inotify import CLOSE_WRITE, CREATE, IGNORED, MODIFY, MOVED_TO, Inotify

STEP_MS: Final = 10
"""Where it is looked whether there were changes: how often, and how long it must be quiet before they are told."""
GROUP_MS: Final = 25
"""How long changes are gathered at most."""
GATHER_S: Final = 0.015
"""How long they are gathered where the system itself says when there are any."""
TOLD_BY: Final = frozenset({"events.jsonl", "host.lock"})
"""The files of a session that are hints about it. A host's end closes its lock, and that is told too."""


class StopEvent(threading.Event):
    """An event that one who waits for files hears of as well. `close` it after it was set."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """What can be read once it is set."""
        return self._reader

    def set(self) -> None:
        if not self.is_set():
            super().set()
            os.write(self._writer, b"\0")

    def close(self) -> None:
        """Once, when nobody waits any more."""
        os.close(self._reader)
        os.close(self._writer)


def hints(places: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """Yield the sessions whose files changed, at least once in *every_s* seconds (then none), until *stop* is set.

    Blocks between; made for a thread of its own. A change of the fleet's log comes as a hint about no session.
    """
    yield from _told(places, stop, every_s) if sys.platform == "linux" else _found(places, stop, every_s)
    while not stop.wait(every_s):
        yield set()


def _told(places: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """By inotify; ends where there is none left."""
    with contextlib.suppress(OSError), contextlib.closing(_Folders(places)) as folders:
        news = select.poll()
        for each in (folders.fileno(), stop.fileno()):
            news.register(each, select.POLLIN)
        due_at = time.monotonic() + every_s
        while not stop.is_set():
            changed, matters = set[SessionId](), False
            if news.poll(1000 * max(0.0, due_at - time.monotonic())) and not stop.wait(GATHER_S):
                changed, matters = folders.changed()
            if matters or time.monotonic() >= due_at:
                yield changed
                due_at = time.monotonic() + every_s


class _Folders:
    """The folders of all sessions, of those to come too, and the fleet's log.

    Raises:
        OSError: if they cannot be watched.
    """

    def __init__(self, places: Paths) -> None:
        self._root = str(places.sessions)
        self._inotify = Inotify()
        self._sessions: dict[int, SessionId] = {}
        try:
            self._all = self._inotify.add(self._root, CREATE | MOVED_TO)
            with contextlib.suppress(FileNotFoundError):
                self._inotify.add(str(places.fleet_log), MODIFY)
            for name in os.listdir(self._root):  # noqa: PTH208 - of thousands
                self._watch(SessionId(name))
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._inotify.fileno()

    def close(self) -> None:
        self._inotify.close()

    def changed(self) -> tuple[set[SessionId], bool]:
        """Of which sessions something changed since the last call, and whether that, or the fleet's log, did at all."""
        sessions, matters = set[SessionId](), False
        for told in self._inotify.read():
            if told.mask & IGNORED:
                self._sessions.pop(told.watch, None)
            elif told.watch == self._all:
                self._watch(SessionId(told.name))
                sessions.add(SessionId(told.name))
            elif (session := self._sessions.get(told.watch)) is None:
                matters = True
            elif told.name in TOLD_BY:
                sessions.add(session)
        return sessions, matters or bool(sessions)

    def _watch(self, session: SessionId) -> None:
        with contextlib.suppress(OSError):  # it is gone again, or there are too many: time gives the hints then
            watch = self._inotify.add(f"{self._root}/{session}", MODIFY | CLOSE_WRITE | CREATE | MOVED_TO)
            self._sessions[watch] = session


def _found(places: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """By whatever else this system has; ends where there is none left."""
    from watchfiles import watch  # 40 ms of imports that nobody needs before the first picture

    root = os.path.realpath(places.sessions)
    paths = [path for path in (root, str(places.fleet_log)) if os.path.exists(path)]  # noqa: PTH110
    try:
        for changes in watch(
            *paths,
            watch_filter=None,
            debounce=GROUP_MS,
            step=STEP_MS,
            stop_event=stop,
            rust_timeout=int(every_s * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            yield {session for _, path in changes if (session := _session(root, path))}
    except (OSError, RuntimeError):  # the library's own error is one of the latter
        return


def _session(root: str, path: str) -> SessionId | None:
    """The session whose log or host lock *path* is; None for every other file."""
    folder, _, name = path.removeprefix(f"{root}/").partition("/")
    return SessionId(folder) if path.startswith(f"{root}/") and name in TOLD_BY else None
