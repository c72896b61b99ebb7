"""What the system tells of changed files, as hints where to look next; where it tells nothing, time passes.

inotify drops events when its queue is full and has none for network file systems, so nobody may rely on a hint.
"""

import os
import threading
from collections.abc import Iterator
from typing import Final

from kasmon.model.permission import SessionId
from kasmon.paths import Places

STEP_MS: Final = 10
"""How long it must be quiet before changes are told; as often it is looked whether there were any."""
GROUP_MS: Final = 25
"""How long changes are gathered at most."""


def hints(places: Places, stop: threading.Event, every_s: float) -> Iterator[set[SessionId]]:
    """Yield the sessions whose files changed, at least once in *every_s* seconds (then none), until *stop* is set.

    Blocks between; made for a thread of its own. A change of the fleet's log comes as a hint about no session.
    """
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
    except OSError:
        pass  # no watches left, or no such thing here: only time gives hints then
    while not stop.wait(every_s):
        yield set()


def _session(root: str, path: str) -> SessionId | None:
    """The session whose log or host lock *path* is; None for every other file."""
    folder, _, name = path.removeprefix(f"{root}/").partition("/")
    return SessionId(folder) if path.startswith(f"{root}/") and name in ("events.jsonl", "host.lock") else None
