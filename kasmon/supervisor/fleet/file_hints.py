"""Hints from the system about changed session files; without such hints, a timer.

inotify drops events when its queue is full and reports none for network file systems, so no caller may rely on hints.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Final

from kasmon import system
from kasmon.model.permission import SessionId
from kasmon.paths import Paths
from kasmon.system.inotify import CLOSE_WRITE, CREATE, IGNORED, MODIFY, MOVED_TO, Inotify

STEP_MS: Final = 10
"""Without inotify: how often to look for changes, and how long it must be quiet before they are reported."""
GROUP_MS: Final = 25
"""How long changes are gathered at most."""
GATHER_S: Final = 0.002
"""With inotify: how long changes are gathered after the first: the write of an event, and the close of its file."""
HINT_FILES: Final = frozenset({"events.jsonl", "host.lock"})
"""The files of a session whose changes are hints. A host that ends closes its lock, which is reported too."""


class StopEvent(threading.Event):
    """A threading event with a file descriptor, so that a `poll` for files wakes too. `close` it after it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """Return a file descriptor that is readable once the event is set."""
        return self._reader

    def set(self) -> None:
        if not self.is_set():
            os.write(self._writer, b"\0")  # first: a thread that sees the event set may close it
            super().set()

    def close(self) -> None:
        """Close the pipe. Call once, when no thread waits any more."""
        os.close(self._reader)
        os.close(self._writer)


def hints(paths: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """Yield the sessions whose files changed, at least every *every_s* seconds (maybe none), until *stop* is set.

    Blocks in between; meant for a thread of its own. A change of the fleet's log yields an empty set.
    """
    by_system = _by_inotify if system.HERE.has_inotify else _by_watchfiles
    return chain(by_system(paths, stop, every_s), (set() for _ in iter(lambda: stop.wait(every_s), True)))


def _by_inotify(paths: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """Hints from inotify; ends if it is unavailable."""
    with contextlib.suppress(OSError), contextlib.closing(_WatchedFolders(paths)) as folders:
        poller = select.poll()
        for each in (folders.fileno(), stop.fileno()):
            poller.register(each, select.POLLIN)
        due_at = time.monotonic() + every_s
        while not stop.is_set():
            changed, is_relevant = set[SessionId](), False
            if poller.poll(1000 * max(0.0, due_at - time.monotonic())) and not stop.wait(GATHER_S):
                changed, is_relevant = folders.changed()
            if is_relevant or time.monotonic() >= due_at:
                yield changed
                due_at = time.monotonic() + every_s


class _WatchedFolders:
    """Watches the folders of all sessions, including new ones, and the fleet's log.

    Raises:
        OSError: if they cannot be watched.
    """

    def __init__(self, paths: Paths) -> None:
        self._root = str(paths.sessions)
        self._inotify = Inotify()
        self._sessions: dict[int, SessionId] = {}
        try:
            self._all = self._inotify.add(self._root, CREATE | MOVED_TO)
            with contextlib.suppress(FileNotFoundError):
                self._inotify.add(str(paths.fleet_log), MODIFY)
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
        """Return the sessions changed since the last call, and whether these or the fleet's log changed at all."""
        sessions, is_relevant = set[SessionId](), False
        for event in self._inotify.read():
            if event.mask & IGNORED:
                self._sessions.pop(event.watch, None)
            elif event.watch == self._all:
                self._watch(SessionId(event.name))
                sessions.add(SessionId(event.name))
            elif (session := self._sessions.get(event.watch)) is None:
                is_relevant = True
            elif event.name in HINT_FILES:
                sessions.add(session)
        return sessions, is_relevant or bool(sessions)

    def _watch(self, session: SessionId) -> None:
        with contextlib.suppress(OSError):  # deleted meanwhile, or too many watches: the timer gives the hints then
            watch = self._inotify.add(f"{self._root}/{session}", MODIFY | CLOSE_WRITE | CREATE | MOVED_TO)
            self._sessions[watch] = session


def _by_watchfiles(paths: Paths, stop: StopEvent, every_s: float) -> Iterator[set[SessionId]]:
    """Hints from `watchfiles`, for other systems; ends if it fails."""
    from watchfiles import watch  # 40 ms of imports, not needed before the first frame

    root = os.path.realpath(paths.sessions)
    watched = [path for path in (root, str(paths.fleet_log)) if os.path.exists(path)]  # noqa: PTH110
    try:
        for changes in watch(
            *watched,
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
    """Return the session whose log or host lock *path* is; None for every other file."""
    folder, _, name = path.removeprefix(f"{root}/").partition("/")
    return SessionId(folder) if path.startswith(f"{root}/") and name in HINT_FILES else None
